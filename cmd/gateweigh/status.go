package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/runner"
	"github.com/gateweigh/gateweigh/lab/words"
)

// statusLine shows one line that tells what a run does, how far it is, and how
// long it still takes. Where there is no terminal it prints plain lines, at
// most one every ten seconds; notices are always printed.
type statusLine struct {
	out      *os.File
	terminal bool
	last     time.Time
}

// Where there is no terminal.
const (
	plainInterval = 10 * time.Second
	plainWidth    = 80
)

func newStatusLine(out *os.File) *statusLine {
	return &statusLine{out: out, terminal: isTerminal(out)}
}

func (s *statusLine) show(p runner.Progress) {
	p.Text, p.Reason = result.Printable(p.Text), result.Printable(p.Reason) // devices' programs may speak in them
	switch text := progress(p); {
	case !p.Notice:
		s.say(text)
	case s.terminal:
		fmt.Fprintf(s.out, "\r\x1b[K%s\n", p.Text)
	default:
		fmt.Fprintln(s.out, p.Text)
	}
}

// mostReason bounds the reason for rejected trials in the line, which has to tell what happens now as well.
const mostReason = 24

// progress is a state in one line: " 37 %  1:20 left  4 rejected (machine: 12 % steal)  opennds, block 2: …".
func progress(p runner.Progress) string {
	rejected := ""
	if p.Rejected > 0 {
		rejected = fmt.Sprintf("%d rejected (%s)  ", p.Rejected, cut(p.Reason, mostReason))
	}
	return fmt.Sprintf("%3.0f %%  %s left  %s%s", 100*p.Done, left(p.Left), rejected, p.Text)
}

// say shows what happens now.
func (s *statusLine) say(text string) {
	switch {
	case s.terminal:
		fmt.Fprintf(s.out, "\r\x1b[K%s", cut(text, terminalWidth(s.out)-1))
	case time.Since(s.last) >= plainInterval:
		s.last = time.Now()
		fmt.Fprintln(s.out, cut(text, plainWidth))
	}
}

// clear removes the line.
func (s *statusLine) clear() {
	if s.terminal {
		fmt.Fprint(s.out, "\r\x1b[K")
	}
}

func left(d time.Duration) string {
	d = d.Round(time.Second)
	if d >= time.Hour {
		return words.Lasting(d)
	}
	return fmt.Sprintf("%d:%02d", int(d.Minutes()), int(d.Seconds())%60)
}

func cut(text string, width int) string {
	text = strings.ReplaceAll(text, "\n", " ")
	if runes := []rune(text); len(runes) > width && width > 1 {
		return string(runes[:width-1]) + "…"
	}
	return text
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// terminalWidth is the width of the terminal behind f in columns, 100 without one.
func terminalWidth(f *os.File) int {
	if ws, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && ws.Col > 20 {
		return int(ws.Col)
	}
	return 100
}
