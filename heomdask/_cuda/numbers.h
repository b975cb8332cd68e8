// What both kernel files share: the port to a card or to a host, and the numbers of a state.
//
// Macros: HD_REAL (float or double) and HD_COMPLEX (0 or 1) say what a state is made of.
//
// Every product is an explicit fused multiply-add and nothing else is contracted, so the same
// source gives the same bits wherever it runs.
#ifdef __CUDACC__
#define HD_KERNEL extern "C" __global__
#define HD_INLINE __device__ __forceinline__
#define HD_UNROLL _Pragma("unroll")
#define HD_UNROLL_BY_4 _Pragma("unroll 4")
#define HD_SHARED(type, name, count) __shared__ type name[count]
#define HD_BARRIER() __syncthreads()
#define HD_BLOCK ((hd_long)blockIdx.x)
#define HD_THREAD ((hd_long)threadIdx.x)
#define HD_THREADS ((hd_long)blockDim.x)
#else
#include "fibers.hpp"
#endif

typedef long long hd_long;

template <class T> struct alignas(2 * sizeof(T)) Complex {
    T re, im;
};
struct Peak {  // the largest number seen, or one that is no number
    double value;
};

#if HD_COMPLEX
typedef Complex<HD_REAL> num;
typedef Complex<double> wide;
#else
typedef HD_REAL num;
typedef double wide;
#endif

HD_INLINE float mac(float a, float b, float c) { return fmaf(a, b, c); }
HD_INLINE double mac(double a, double b, double c) { return fma(a, b, c); }
template <class T> HD_INLINE Complex<T> mac(Complex<T> a, Complex<T> b, Complex<T> c) {
    return {mac(-a.im, b.im, mac(a.re, b.re, c.re)), mac(a.im, b.re, mac(a.re, b.im, c.im))};
}

template <class T> HD_INLINE T plus(T a, T b) { return a + b; }
template <class T> HD_INLINE Complex<T> plus(Complex<T> a, Complex<T> b) {
    return {a.re + b.re, a.im + b.im};
}
HD_INLINE Peak plus(Peak a, Peak b) {
    return a.value > b.value || a.value != a.value ? a : b;
}

template <class T> HD_INLINE T times(T a, T b) { return mac(a, b, T{}); }

template <class T> HD_INLINE Complex<T> scaled(T s, Complex<T> a) { return {s * a.re, s * a.im}; }
HD_INLINE float scaled(float s, float a) { return s * a; }
HD_INLINE double scaled(double s, double a) { return s * a; }

HD_INLINE double conjugate(double a) { return a; }
HD_INLINE Complex<double> conjugate(Complex<double> a) { return {a.re, -a.im}; }

HD_INLINE double size_of(double a) { return fabs(a); }
HD_INLINE double size_of(Complex<double> a) { return sqrt(fma(a.re, a.re, a.im * a.im)); }

template <class T> HD_INLINE bool is_zero(T a) { return a == 0; }
template <class T> HD_INLINE bool is_zero(Complex<T> a) { return a.re == 0 && a.im == 0; }

HD_INLINE HD_REAL narrow(double a) { return (HD_REAL)a; }
HD_INLINE Complex<HD_REAL> narrow(Complex<double> a) { return {narrow(a.re), narrow(a.im)}; }
template <class T> HD_INLINE double widen(T a) { return a; }
template <class T> HD_INLINE Complex<double> widen(Complex<T> a) { return {a.re, a.im}; }
