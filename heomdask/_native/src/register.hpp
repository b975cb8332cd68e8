// What module.cpp registers.
#pragma once
#include <nanobind/nanobind.h>

void register_engine(nanobind::module_ &m);
void register_ceilings(nanobind::module_ &m);
void register_local(nanobind::module_ &m);
