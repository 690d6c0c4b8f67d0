// Package textfile reads files that people write with an editor of theirs: the byte order mark that some
// editors begin UTF-8 with is never part of the text.
package textfile

import (
	"crypto/tls"
	"fmt"
	"io"
	"os"
	"strings"
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

// Read reads a file of at most that many bytes, without byte order marks in front. Errors name the file.
func Read(path string, most int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	if err == nil && len(data) > most {
		err = fmt.Errorf("%s is larger than %d bytes", path, most)
	}
	return Trim(data), err
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
	return tls.X509KeyPair(parts[0], parts[1])
}
