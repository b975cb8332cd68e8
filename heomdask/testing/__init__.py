"""What a tester of heomdask, or of a new backend, needs: random plans, oracles, the suite."""
