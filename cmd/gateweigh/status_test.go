package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/runner"
)

// terminal opens a pseudo-terminal with a number of columns. What a program writes to one end can be read from the
// other.
func terminal(t *testing.T, columns uint16) (program, reader *os.File) {
	t.Helper()
	reader, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reader.Close() })
	number, err := unix.IoctlGetInt(int(reader.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(reader.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(int(reader.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 25, Col: columns})
	}
	if err == nil {
		program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	return program, reader
}

// busy is the progress of a run on a machine where other programs disturb the trials.
var busy = runner.Progress{
	Text: "gateway-nfqueue-fast, 20 clients, block 2: measuring window 3 of 4 at 1000 Mbit/s up, bulk", Done: 0.37,
	Left:     80 * time.Second,
	Rejected: 4, Reason: "machine: 12.5 % of the CPUs' time was stolen by a neighbour, limit 1 %",
}

// TestProgressFits: on a terminal the progress fits one line, with the number of rejected trials and the first words of
// the reason. A log has the whole reason.
func TestProgressFits(t *testing.T) {
	for _, columns := range []uint16{80, 60} {
		program, reader := terminal(t, columns)
		line := newStatusLine(program)
		line.show(busy)
		line.clear()
		buffer := make([]byte, 4096)
		message := ""
		for !strings.HasSuffix(message, "\r\x1b[K") || strings.Count(message, "\r") < 2 {
			n, err := reader.Read(buffer)
			if err != nil {
				t.Fatal(err)
			}
			message += string(buffer[:n])
		}
		shown := strings.Split(message, "\r\x1b[K")[1]
		if n := utf8.RuneCountInString(shown); n >= int(columns) ||
			!strings.HasPrefix(shown, " 37 %  1:20 left  4 rejected (machine: 12.5 %") {
			t.Errorf("%d characters in %d columns: %q", n, columns, shown)
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	newStatusLine(w).show(busy)
	w.Close()
	buffer := make([]byte, 4096)
	n, err := r.Read(buffer)
	if text := string(buffer[:n]); err != nil ||
		text != " 37 %  1:20 left  4 rejected ("+busy.Reason+")  "+busy.Text+"\n" {
		t.Errorf("without a terminal: %v, %q", err, text)
	}
	if text := progress(runner.Progress{Text: "x", Done: 1}, false); text != "100 %  0:00 left  x" {
		t.Errorf("nothing rejected: %q", text)
	}
}
