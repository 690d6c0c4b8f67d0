package tun

//go:generate go tool bpf2go -tags linux -target bpfel,bpfeb -type record -type bell -cflags "-O2 -mcpu=v3 -g -Wall -Werror -I/usr/include/x86_64-linux-gnu" device device.bpf.c
