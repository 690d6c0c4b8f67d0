package ebpf

//go:generate -command bpf2go go tool bpf2go -tags linux -target bpfel,bpfeb -cflags "-O2 -g -Wall -Werror -I/usr/include/x86_64-linux-gnu"
//go:generate bpf2go gateway gateway.bpf.c
//go:generate bpf2go learn learn.bpf.c
//go:generate bpf2go split split.bpf.c
