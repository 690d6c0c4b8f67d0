package sink

// bpf2go compiles sink.bpf.c, and embeds the result in programs_bpfel.go and programs_bpfeb.go.

//go:generate go tool bpf2go -tags linux -target bpfel,bpfeb -cflags "-O2 -g -Wall -Werror -I/usr/include/x86_64-linux-gnu" programs sink.bpf.c
