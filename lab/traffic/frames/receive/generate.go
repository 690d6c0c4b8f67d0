package receive

//go:generate go tool bpf2go -tags linux -target bpfel,bpfeb -type stream -type cpu -cflags "-O2 -g -Wall -Werror -I/usr/include/x86_64-linux-gnu" programs receive.bpf.c
