package transition

//go:generate go tool bpf2go -tags linux -target bpfel,bpfeb -type event -cflags "-O2 -g -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu" programs tap.bpf.c
