"""The compiler: devices and memory, barriers against fusion, scalar code, sums in a fixed order."""
