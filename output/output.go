// Package output is a program's standard output, for any program: what could not be written is not forgotten.
package output

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// Writer writes to standard output and keeps the first error. What comes after it is not written.
type Writer struct {
	to  io.Writer
	err error
}

// To is a Writer to a program's standard output.
func To(stdout io.Writer) *Writer { return &Writer{to: stdout} }

func (w *Writer) Write(b []byte) (n int, err error) {
	if w.err == nil {
		if n, err = w.to.Write(b); err != nil {
			var at *fs.PathError
			if errors.As(err, &at) {
				err = at.Err // without "write /dev/stdout"
			}
			w.err = fmt.Errorf("writing to standard output: %w", err)
		}
	}
	return n, w.err
}

// End returns the error with which a program ends: err, or the error of writing its output.
func (w *Writer) End(err error) error {
	if w.err == nil || errors.Is(err, w.err) {
		return err
	}
	return errors.Join(err, w.err)
}
