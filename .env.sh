export PYTHONPATH=/tmp/wt/paper/src:/tmp/wt/paper OCCAMRL_CACHE_DIR=/tmp/wt/paper/.cache/numba OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
PY=/work/main/.venv/bin/python
