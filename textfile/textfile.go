// Package textfile reads files that people write with an editor of theirs: the byte order mark that some
// editors begin UTF-8 with is never part of the text.
package textfile

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"
	"unicode/utf16"
)

// mark is U+FEFF, the byte order mark.
const mark = "\ufeff"

// Trim returns a text, or a line of one, without byte order marks in front. A line has one where files were
// joined.
func Trim[T string | []byte](text T) T {
	rest := string(text)
	for strings.HasPrefix(rest, mark) {
		rest = rest[len(mark):]
	}
	return text[len(text)-len(rest):]
}

// Foreign names the encoding of a text that is not UTF-8, as far as its first bytes tell: "UTF-16", "UTF-32"; else "".
func Foreign(data []byte) string {
	for _, e := range []struct{ begin, name string }{
		{"\xff\xfe\x00\x00", "UTF-32"}, {"\x00\x00\xfe\xff", "UTF-32"}, {"\xff\xfe", "UTF-16"}, {"\xfe\xff", "UTF-16"},
	} {
		if bytes.HasPrefix(data, []byte(e.begin)) {
			return e.name
		}
	}
	switch first := data[:min(len(data), 4)]; bytes.Count(first, []byte{0}) {
	// without a mark; nothing but such bytes is no text
	case 1, 2:
		return "UTF-16"
	case 3:
		return "UTF-32"
	}
	return ""
}

// Decode returns a text as UTF-8, without byte order marks in front. UTF-16 is taken where it begins with such a mark,
// as editors write it; an error says what the text is and what to do.
func Decode(data []byte) ([]byte, error) {
	name := Foreign(data)
	if name == "" {
		return Trim(data), nil
	}
	order := binary.ByteOrder(binary.LittleEndian)
	switch {
	case name == "UTF-16" && data[0] == 0xfe:
		order = binary.BigEndian
	case name != "UTF-16" || data[0] != 0xff:
		return nil, fmt.Errorf("it is %s text: save it as UTF-8 (iconv -f %s -t UTF-8)", name, name)
	}
	if len(data)%2 != 0 {
		return nil, errors.New("it is UTF-16 text that ends within a character: save it as UTF-8")
	}
	units := make([]uint16, len(data)/2)
	for i := range units {
		units[i] = order.Uint16(data[2*i:])
	}
	return Trim([]byte(string(utf16.Decode(units)))), nil
}

// Open opens a regular file, perhaps behind a symbolic link, for reading. It never waits: a pipe, a device, a socket or
// a folder is an error. Errors name the file.
func Open(path string) (*os.File, error) {
	f, info, err := open(path)
	if err == nil && !info.Mode().IsRegular() {
		f.Close()
		return nil, irregular(path, info)
	}
	return f, err
}

// open opens what is at a path, also a pipe that nobody writes to, without waiting for anyone.
func open(path string) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, Plain(err)
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, nil, Plain(err)
	}
	return f, info, nil
}

// irregular says that what is at a path is no file to read from.
func irregular(path string, info fs.FileInfo) error {
	if info.IsDir() {
		return Plain(&fs.PathError{Op: "read", Path: path, Err: syscall.EISDIR})
	}
	return fmt.Errorf("%s is no regular file, but a %s: name a file", path, kindOf(info.Mode()))
}

// kindOf says what is no regular file.
func kindOf(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeNamedPipe != 0:
		return "pipe"
	case mode&fs.ModeSocket != 0:
		return "socket"
	}
	return "device"
}

// Read reads a regular file of at most that many bytes, without byte order marks in front. Errors name the file.
func Read(path string, most int) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAll(f, path, most)
}

// pipeWait is how long ReadOnce waits for the program that writes to a pipe. Tests change it.
var pipeWait = 5 * time.Second

// ReadOnce is Read for a text that is needed once, which may also come from a pipe, such as /dev/stdin or <(COMMAND) in
// a shell. The program that writes to it must have opened it, and end within pipeWait.
func ReadOnce(path string, most int) ([]byte, error) {
	f, info, err := open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	isPipe := info.Mode()&fs.ModeNamedPipe != 0
	if !isPipe && !info.Mode().IsRegular() {
		return nil, irregular(path, info)
	}
	if isPipe {
		if err := f.SetReadDeadline(time.Now().Add(pipeWait)); err != nil {
			return nil, Plain(err)
		}
	}
	data, err := readAll(f, path, most)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = fmt.Errorf("%s is a pipe to which a program still writes after %v: write to a file, and name that", path,
			pipeWait)
	case err == nil && isPipe && len(data) == 0:
		err = fmt.Errorf("%s is a pipe to which nobody writes: name a file", path)
	}
	return data, err
}

func readAll(r io.Reader, path string, most int) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, int64(most)+1))
	if err == nil && len(data) > most {
		err = fmt.Errorf("%s is larger than %d bytes", path, most)
	}
	return Trim(data), Plain(err)
}

// Stranger is the user whose file it is, where that is neither root nor the user of this process, and could therefore
// read and change it.
func Stranger(info fs.FileInfo) (uid int, is bool) {
	uid = int(info.Sys().(*syscall.Stat_t).Uid) // always, on Linux
	return uid, uid != 0 && uid != os.Geteuid()
}

// plain is an error whose text is in plain words.
type plain struct {
	text string
	error
}

func (p plain) Error() string { return p.text }
func (p plain) Unwrap() error { return p.error }

// Plain has an error of a file or folder say which, and what is wrong, without the system call. What the error is
// remains.
func Plain(err error) error {
	var of *fs.PathError
	if !errors.As(err, &of) {
		return err
	}
	text := of.Path + ": " + of.Err.Error()
	switch {
	case of.Path == "":
		text = "the path is empty: name one"
	case errors.Is(of.Err, fs.ErrNotExist):
		text = of.Path + " does not exist"
	case errors.Is(of.Err, syscall.EISDIR):
		text = of.Path + " is a folder, no file"
	case errors.Is(of.Err, syscall.ENXIO):
		text = of.Path + " is no regular file, but a socket: name a file"
	case errors.Is(of.Err, syscall.ENOTDIR):
		text = of.Path + " is below a file, which is no folder"
	case errors.Is(of.Err, fs.ErrPermission):
		text = of.Path + " is not open to this user: permission denied"
	}
	return plain{text, err}
}

// maxPEM bounds a certificate chain and its key, bytes each.
const maxPEM = 1 << 20

// KeyPair reads a certificate chain and its key, PEM both. Errors name the file that cannot be read.
func KeyPair(cert, key string) (tls.Certificate, error) {
	var parts [2][]byte
	for i, path := range []string{cert, key} {
		var err error
		if parts[i], err = Read(path, maxPEM); err != nil {
			return tls.Certificate{}, err
		}
	}
	for i, subject := range []string{"CERTIFICATE", "PRIVATE KEY"} {
		if !bytes.Contains(blocks(parts[i]), []byte(subject)) {
			return tls.Certificate{}, fmt.Errorf("%s has no BEGIN %s in it: it must be PEM", []string{cert, key}[i], subject)
		}
	}
	pair, err := tls.X509KeyPair(parts[0], parts[1])
	if err != nil {
		err = fmt.Errorf("%s and %s: %s", cert, key, strings.TrimPrefix(err.Error(), "tls: "))
	}
	return pair, err
}

// blocks are the kinds of a text's PEM blocks.
func blocks(text []byte) (kinds []byte) {
	for {
		b, rest := pem.Decode(text)
		if b == nil {
			return kinds
		}
		kinds, text = append(append(kinds, b.Type...), ','), rest
	}
}
