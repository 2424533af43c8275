"""What tools/gpu_gpu_check.py checks on a GPU, and tests without one."""
