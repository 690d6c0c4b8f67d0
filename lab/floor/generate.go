package floor

//go:generate go tool bpf2go -tags linux -target bpfel,bpfeb -cflags "-O2 -g -Wall -Werror -I/usr/include/x86_64-linux-gnu" -type hop programs floor.bpf.c
