"""C++ on a CPU under the lens: assembly, GCC's last GIMPLE or LLVM IR, and facts from them."""
