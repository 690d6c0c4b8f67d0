// Package profile says which functions a router's time goes to. perf samples
// stacks of the whole machine; how long each thread of a router really ran is
// known exactly from the scheduler's accounts. So samples only share out the
// exact time of each thread or process among its stacks: the parts always add up
// to what the router cost in the window, however many samples were lost.
package profile

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/lab/result"
)

// Version of profile.json. Readers refuse a newer one.
const Version = 1

// Profile is one cell's profile: the device and the clean router in the same
// window, which is not one of the windows the cell's trials were measured in.
type Profile struct {
	Version     int         `json:"version"`
	Cell        result.Cell `json:"cell"`
	Block       int         `json:"block"`   // whose labs it was recorded in
	DUTLab      string      `json:"dut_lab"` // "a" or "b"
	Start       time.Time   `json:"start"`   // UTC
	FrequencyHz int         `json:"frequency_hz"`
	UserStacks  string      `json:"user_stacks"` // how they were unwound: UnwindFP or UnwindDWARF
	Perf        string      `json:"perf"`        // version of perf
	DUT         Side        `json:"dut"`
	Clean       Side        `json:"clean"`
}

// Side is one router of the pair.
type Side struct {
	Seconds       float64   `json:"seconds"` // length of the window by the router's clock
	Packets       int64     `json:"packets"` // sent on all its links, as the measure counts them
	DeliveredMbps float64   `json:"delivered_mbps"`
	Accounts      []Account `json:"accounts"` // largest first
	Stacks        []Stack   `json:"-"`        // in the folded files
}

// Account is a thread or the processes of one name, whose time is known exactly.
type Account struct {
	Name    string `json:"name"`
	Ns      int64  `json:"ns"`      // on-CPU time in the window, exact
	Samples int    `json:"samples"` // taken in the window
	// SampledNs is samples × period. Over Ns it is the sampling's coverage: 1 when
	// no sample that was due has been lost.
	SampledNs int64 `json:"sampled_ns"`
}

// Names of accounts that are no process's.
const (
	AccountLAN = "napi/lan" // polling thread of the link to the clients
	AccountWAN = "napi/wan" // polling thread of the link to the server
)

// Coverage is the share of the account's time that samples stand for, 0 when
// it did not run. Above 1 is possible by chance.
func (a Account) Coverage() float64 {
	if a.Ns <= 0 {
		return 0
	}
	return float64(a.SampledNs) / float64(a.Ns)
}

// Scaled is the profile with every time multiplied, those the samples stand for
// as well, so that shares and coverage stay as they are.
func (p Profile) Scaled(by float64) Profile {
	for _, s := range []*Side{&p.DUT, &p.Clean} {
		s.Accounts, s.Stacks = slices.Clone(s.Accounts), slices.Clone(s.Stacks)
		for i := range s.Accounts {
			a := &s.Accounts[i]
			a.Ns, a.SampledNs = int64(by*float64(a.Ns)), int64(by*float64(a.SampledNs))
		}
		for i := range s.Stacks {
			s.Stacks[i].NsPerPacket *= by
		}
	}
	return p
}

// Stack is a call stack and what the router's packets cost in it.
type Stack struct {
	Frames      []Frame // outermost first; the first is the account
	NsPerPacket float64 // in the innermost function itself
}

// Frame is one function of a stack, or the account a stack belongs to.
type Frame struct {
	Func string
	// Module is Kernel, "kernel:" and a kernel module, or the file name of a
	// program or library. It is empty for an account.
	Module string
}

// Kernel is the module of the kernel's own functions.
const Kernel = "kernel"

// Unknown is the function of an address that nothing is known of.
const Unknown = "[unknown]"

// notSampled is the function under which an account's time is kept that no
// sample was taken in.
var notSampled = Frame{"[no sample taken]", "?"}

// InKernel reports whether the frame is kernel code.
func (f Frame) InKernel() bool {
	return f.Module == Kernel || strings.HasPrefix(f.Module, Kernel+":")
}

// String is the frame as folded files hold it: "ip_forward [kernel]".
func (f Frame) String() string {
	if f.Module == "" {
		return f.Func
	}
	return f.Func + " [" + f.Module + "]"
}

// parseFrame is the inverse of String.
func parseFrame(s string) Frame {
	index := strings.LastIndex(s, " [")
	if index < 0 || !strings.HasSuffix(s, "]") || len(s) < index+4 {
		return Frame{Func: s}
	}
	return Frame{s[:index], s[index+2 : len(s)-1]}
}

func compareFrames(a, b Frame) int {
	return cmp.Or(cmp.Compare(a.Func, b.Func), cmp.Compare(a.Module, b.Module))
}

// NsPerPacket is what a packet cost the router, the sum over its stacks.
func (s Side) NsPerPacket() float64 {
	var sum float64
	for _, st := range s.Stacks {
		sum += st.NsPerPacket
	}
	return sum
}

// mostNameless is the share of its time up to which a profile's functions may lack names.
const mostNameless = 0.5

// Useless is an error where a profile says nothing of any function: perf took no sample, or the kernel hid its names.
func (p Profile) Useless() error {
	samples, kernel, nameless := 0, 0.0, 0.0
	for _, s := range []Side{p.DUT, p.Clean} {
		for _, a := range s.Accounts {
			samples += a.Samples
		}
		for _, st := range s.Stacks {
			if name := st.Frames[0].Func; s.account(name).Samples > 0 && (name == AccountLAN || name == AccountWAN) {
				kernel += st.NsPerPacket
				nameless += st.namelessNs()
			}
		}
	}
	switch {
	case samples == 0:
		return errors.New("perf took no sample of either router: nothing is known of its functions")
	case kernel > 0 && nameless > 0.9*kernel:
		return errors.New(
			"the kernel's functions have no names: it hid where they are (all addresses of /proc/kallsyms are 0) when perf ran: " +
				"sudo sysctl kernel.kptr_restrict=1, in a container CAP_SYSLOG")
	}
	return nil
}

// Weakness says what is missing from a profile, in a sentence; empty: nothing.
func (p Profile) Weakness() string {
	if err := p.Useless(); err != nil {
		return fmt.Sprintf(
			"No answer: %v. Remove %s from the run's folder, and record it anew with gateweigh run --resume RUN --profile.", err,
			Dir("", p.Cell))
	}
	var all, nameless float64
	for _, s := range []Side{p.DUT, p.Clean} {
		for _, st := range s.Stacks {
			all += st.NsPerPacket
			nameless += st.namelessNs()
		}
	}
	if nameless > mostNameless*all {
		return fmt.Sprintf(
			"%.0f %% of the time is in functions without a name: programs that were stripped have none, nor have files that "+
				"were gone when perf's samples were read.", 100*nameless/all)
	}
	return ""
}

// namelessNs is the time of a stack whose innermost function has no name.
func (s Stack) namelessNs() float64 {
	if s.Frames[len(s.Frames)-1].Func == Unknown {
		return s.NsPerPacket
	}
	return 0
}

// account finds an account by name; the zero Account when there is none.
func (s Side) account(name string) Account {
	if i := slices.IndexFunc(s.Accounts, func(a Account) bool { return a.Name == name }); i >= 0 {
		return s.Accounts[i]
	}
	return Account{}
}
