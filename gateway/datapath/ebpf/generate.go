package ebpf

//go:generate go tool bpf2go -tags linux -target bpfel,bpfeb -cflags "-O2 -g -Wall -Werror -I/usr/include/x86_64-linux-gnu" gateway gateway.bpf.c
//go:generate go tool bpf2go -tags linux -target bpfel,bpfeb -cflags "-O2 -g -Wall -Werror -I/usr/include/x86_64-linux-gnu" learn learn.bpf.c
