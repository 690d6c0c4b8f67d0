// Package profile finds out in which functions a router spends its CPU time. perf samples stacks of the whole machine.
// How long each thread or process of a router ran is known exactly from the kernel (lab/meter): this is an account. The
// samples of an account only share out its exact time among its stacks. So the parts always add up to what the router
// cost in the window, however many samples were lost.
//
// Start records, Read reads a recording, Recording.Side makes the profile of a router, Write stores it in the run's
// folder, and Explain compares the device with the clean router.
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
	Block       int         `json:"block"`   // number of the block in whose labs it was recorded
	DUTLab      string      `json:"dut_lab"` // "a" or "b"
	Start       time.Time   `json:"start"`   // UTC
	FrequencyHz int         `json:"frequency_hz"`
	UserStacks  string      `json:"user_stacks"` // how stacks of user code were unwound: UnwindFP or UnwindDWARF
	Perf        string      `json:"perf"`        // version of perf
	DUT         Side        `json:"dut"`
	Clean       Side        `json:"clean"`
}

// Side is the profile of one router of the pair.
type Side struct {
	Seconds       float64   `json:"seconds"` // length of the window by the router's clock
	Packets       int64     `json:"packets"` // sent on all its links, as the measure counts them
	DeliveredMbps float64   `json:"delivered_mbps"`
	Accounts      []Account `json:"accounts"` // largest first
	Stacks        []Stack   `json:"-"`        // stored in the folded files, not in profile.json
}

// Account is a polling thread, or all processes of one name. Its CPU time is known exactly.
type Account struct {
	Name    string `json:"name"`
	Ns      int64  `json:"ns"`      // on-CPU time in the window, exact
	Samples int    `json:"samples"` // taken in the window
	// SampledNs is the time that the samples stand for: their number times their period. SampledNs / Ns is the coverage:
	// 1 if no sample was lost.
	SampledNs int64 `json:"sampled_ns"`
}

// Names of accounts that belong to no process.
const (
	AccountLAN = "napi/lan" // polling thread of the link to the clients
	AccountWAN = "napi/wan" // polling thread of the link to the server
)

// Coverage is the share of the account's time that samples stand for; 0 if the account did not run. By chance it may be
// above 1.
func (a Account) Coverage() float64 {
	if a.Ns <= 0 {
		return 0
	}
	return float64(a.SampledNs) / float64(a.Ns)
}

// Scaled returns the profile with every time multiplied by a factor, SampledNs
// too, so that shares and coverage stay as they are.
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

// Stack is a call stack and the router's time in it.
type Stack struct {
	Frames      []Frame // outermost first; the first is the account
	NsPerPacket float64 // time in the innermost function itself
}

// Frame is one function of a stack, or the account a stack belongs to.
type Frame struct {
	Func string
	// Module is the file that has the function: Kernel, "kernel:" and the name of a kernel module, or the file name of a
	// program or library. It is empty for an account.
	Module string
}

// Kernel is the module of the kernel's own functions.
const Kernel = "kernel"

// Unknown stands for the function at an address about which nothing is known.
const Unknown = "[unknown]"

// notSampled stands for the function in which an account without any sample
// spent its time.
var notSampled = Frame{"[no sample taken]", "?"}

// InKernel reports whether the frame is kernel code.
func (f Frame) InKernel() bool {
	return f.Module == Kernel || strings.HasPrefix(f.Module, Kernel+":")
}

// String returns the frame as it stands in folded files: "ip_forward [kernel]".
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

// compareFrames orders frames by function, then by module.
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

// mostNameless is the largest share of a profile's time in functions without a name that is no weakness.
const mostNameless = 0.5

// Useless returns an error if the profile tells nothing about functions: perf took no sample, or the kernel hid the
// names of its functions.
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

// Weakness says in a sentence what a profile lacks; empty: nothing.
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

// namelessNs returns the stack's NsPerPacket if its innermost function has no name, otherwise 0.
func (s Stack) namelessNs() float64 {
	if s.Frames[len(s.Frames)-1].Func == Unknown {
		return s.NsPerPacket
	}
	return 0
}

// account finds an account by its name. It returns the zero Account if there is none.
func (s Side) account(name string) Account {
	if i := slices.IndexFunc(s.Accounts, func(a Account) bool { return a.Name == name }); i >= 0 {
		return s.Accounts[i]
	}
	return Account{}
}
