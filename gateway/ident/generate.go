package ident

//go:generate go tool bpf2go -tags linux -target bpfel,bpfeb -type conn -type life -type asker -type conn6 -type asker6 -type network6 -cflags "-O2 -g -Wall -Werror -I/usr/include/x86_64-linux-gnu" ident ident.bpf.c
