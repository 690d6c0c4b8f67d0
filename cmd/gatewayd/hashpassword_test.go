package main

import (
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/crypto/argon2"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway"
)

// openTerminal opens a pseudo-terminal: the user's side, and the program's side.
func openTerminal(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { person.Close() })
	number, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	return person, program
}

// TestPasswordFromTerminalIsNotShown: a password that is typed at a terminal is asked twice and not shown, and
// afterwards the terminal shows again what is typed.
func TestPasswordFromTerminalIsNotShown(t *testing.T) {
	person, program := openTerminal(t)
	prompts, ask := io.Pipe()
	type asked struct {
		password string
		err      error
	}
	done := make(chan asked)
	go func() {
		p, err := askPassword(t.Context(), program, ask)
		ask.Close()
		done <- asked{p, err}
	}()
	// Each line is typed after its prompt: echo is off by then.
	var prompt string
	buf := make([]byte, 100)
	for {
		n, err := prompts.Read(buf)
		if err != nil {
			break
		}
		if prompt += string(buf[:n]); strings.HasSuffix(prompt, ": ") {
			fmt.Fprint(person, "geheim\n")
		}
	}
	if got := <-done; got.password != "geheim" || got.err != nil {
		t.Errorf("%q, %v", got.password, got.err)
	}
	if prompt != "Password: \nOnce more: \n" {
		t.Errorf("asked %q", prompt)
	}
	after, err := unix.IoctlGetTermios(int(program.Fd()), unix.TCGETS)
	if err != nil || after.Lflag&unix.ECHO == 0 {
		t.Errorf("the terminal's echo stays off: %v", err)
	}
	// The user's screen ends with this line and contains no password.
	fmt.Fprint(program, "end")
	n, _ := person.Read(buf)
	if got := string(buf[:n]); strings.Contains(got, "geheim") || !strings.HasSuffix(got, "end") {
		t.Errorf("on the screen: %q", got)
	}
}

// TestPasswordFromFile: neither a byte order mark nor the line's end is part of a password.
func TestPasswordFromFile(t *testing.T) {
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	fmt.Fprint(out, "\ufeffgeheim\r\nmore")
	out.Close()
	if got, err := askPassword(t.Context(), in, io.Discard); got != "geheim" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// TestHashIsArgon2id: a hash names its parameters, and x/crypto's argon2id computes the same with them.
func TestHashIsArgon2id(t *testing.T) {
	parts := strings.Split(gateway.HashPassword("geheim"), "$")
	if len(parts) != 6 || strings.Join(parts[:4], "$") != "$argon2id$v=19$m=65536,t=3,p=4" {
		t.Fatalf("%q", parts)
	}
	salt, err1 := base64.RawStdEncoding.DecodeString(parts[4])
	key, err2 := base64.RawStdEncoding.DecodeString(parts[5])
	if err1 != nil || err2 != nil || len(salt) != 16 ||
		string(argon2.IDKey([]byte("geheim"), salt, 3, 64<<10, 4, uint32(len(key)))) != string(key) {
		t.Errorf("%q does not verify", parts)
	}
}
