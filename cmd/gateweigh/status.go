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

// statusLine shows in one line what a run does, how far it is, and how long it still takes. On a terminal it overwrites
// that line. Elsewhere it prints a line at most every ten seconds. Notices are always printed, on lines of their own.
type statusLine struct {
	out      *os.File
	terminal bool
	last     time.Time // when a line was last printed, without a terminal
}

// plainInterval is the least time between two lines without a terminal.
const plainInterval = 10 * time.Second

func newStatusLine(out *os.File) *statusLine {
	return &statusLine{out: out, terminal: isTerminal(out)}
}

func (s *statusLine) show(p runner.Progress) {
	p.Text, p.Reason = result.Printable(p.Text), result.Printable(p.Reason) // may have output of devices' programs
	switch {
	case !p.Notice:
		s.say(progress(p, s.terminal))
	case s.terminal:
		fmt.Fprintf(s.out, "\r\x1b[K%s\n", p.Text)
	default:
		fmt.Fprintln(s.out, p.Text)
	}
}

// maxReason is the longest text in a terminal's line about why trials were rejected, in characters, so that the rest
// has room.
const maxReason = 24

// progress returns the line, such as " 37 %  1:20 left  4 rejected (machine: 12 % steal)  opennds, block 2: …".
// A short one has only the beginning of the reason.
func progress(p runner.Progress, short bool) string {
	rejected := ""
	if p.Rejected > 0 {
		if short {
			p.Reason = cut(p.Reason, maxReason)
		}
		rejected = fmt.Sprintf("%d rejected (%s)  ", p.Rejected, p.Reason)
	}
	return fmt.Sprintf("%3.0f %%  %s left  %s%s", 100*p.Done, timeLeft(p.Left), rejected, p.Text)
}

// say shows a text in the line, cut to the terminal's width.
func (s *statusLine) say(text string) {
	switch {
	case s.terminal:
		fmt.Fprintf(s.out, "\r\x1b[K%s", cut(text, terminalWidth(s.out)-1))
	case time.Since(s.last) >= plainInterval:
		s.last = time.Now()
		fmt.Fprintln(s.out, strings.ReplaceAll(text, "\n", " "))
	}
}

// clear removes the line.
func (s *statusLine) clear() {
	if s.terminal {
		fmt.Fprint(s.out, "\r\x1b[K")
	}
}

// timeLeft returns a time as minutes and seconds, "1:20"; from an hour on in words.
func timeLeft(d time.Duration) string {
	d = d.Round(time.Second)
	if d >= time.Hour {
		return words.Lasting(d)
	}
	return fmt.Sprintf("%d:%02d", int(d.Minutes()), int(d.Seconds())%60)
}

// cut shortens a text to width characters, with … at its end.
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

// terminalWidth returns the width of the terminal f in columns, 100 where f is none.
func terminalWidth(f *os.File) int {
	if ws, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && ws.Col > 20 {
		return int(ws.Col)
	}
	return 100
}
