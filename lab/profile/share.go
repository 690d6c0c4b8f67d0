// Makes the profile of one router (Side) of a recording.

package profile

import (
	"cmp"
	"slices"
)

// Router says which threads and processes belong to one router, and how long each account ran in the window.
type Router struct {
	FromNs, ToNs  int64            // the window, by the clock of the samples
	Seconds       float64          // length of the window by the router's clock
	Packets       int64            // see Side.Packets
	DeliveredMbps float64          // see Side.DeliveredMbps
	Threads       map[int]string   // account by thread id
	Processes     map[int]string   // account by process id; it holds for the process's descendants too
	Ns            map[string]int64 // exact on-CPU time by account
}

// Side shares out the exact time of each account of a router among the stacks of its samples. An account without
// samples gets a stack with the function notSampled.
func (rec *Recording) Side(r Router) Side {
	s := Side{Seconds: r.Seconds, Packets: r.Packets, DeliveredMbps: r.DeliveredMbps}
	byAccount := map[string][]Sample{}
	for _, sample := range rec.Samples {
		if sample.TimeNs < r.FromNs || sample.TimeNs >= r.ToNs {
			continue
		}
		if name := rec.account(sample, r); name != "" {
			byAccount[name] = append(byAccount[name], sample)
		}
	}
	for name, ns := range r.Ns {
		if ns <= 0 {
			continue
		}
		a := Account{Name: folding.Replace(name), Ns: ns, Samples: len(byAccount[name])}
		for _, sample := range byAccount[name] {
			a.SampledNs += sample.PeriodNs
		}
		s.Accounts = append(s.Accounts, a)
		s.Stacks = append(s.Stacks, rec.share(a, byAccount[name], r.Packets)...)
	}
	slices.SortFunc(
		s.Accounts, func(a, b Account) int { return cmp.Or(cmp.Compare(b.Ns, a.Ns), cmp.Compare(a.Name, b.Name)) })
	s.Stacks = mergeStacks(s.Stacks)
	return s
}

// maxAncestors bounds the search among a process's ancestors. The kernel uses process ids again, so the parents in a
// long recording may form a circle.
const maxAncestors = 64

// account returns the name of the account that a sample belongs to; "" if it is not of the router.
func (rec *Recording) account(s Sample, r Router) string {
	name, ours := r.Threads[s.TID]
	pid, known := s.PID, true
	for range maxAncestors {
		if ours || !known {
			break
		}
		name, ours = r.Processes[pid]
		pid, known = rec.Parents[pid]
	}
	return name
}

// share makes a stack of each sample of an account. Each stack gets the same part of the account's exact time. packets
// is the number of packets in the window.
func (rec *Recording) share(a Account, samples []Sample, packets int64) []Stack {
	perPacket := float64(a.Ns) / float64(max(packets, 1))
	root := Frame{Func: a.Name}
	if len(samples) == 0 {
		return []Stack{{[]Frame{root, notSampled}, perPacket}}
	}
	stacks := make([]Stack, len(samples))
	for i, s := range samples {
		frames := []Frame{root}
		for _, f := range slices.Backward(s.Stack) {
			// An unwinder that lost its way leaves runs of unknown frames.
			if next := rec.Frames[f]; next.Func != Unknown || frames[len(frames)-1] != next {
				frames = append(frames, next)
			}
		}
		if len(frames) == 1 {
			frames = append(frames, Frame{Unknown, "?"})
		}
		stacks[i] = Stack{frames, perPacket / float64(len(samples))}
	}
	return stacks
}

// mergeStacks sorts stacks by their frames, and makes one stack of equal ones, with the sum of their times.
func mergeStacks(stacks []Stack) []Stack {
	slices.SortStableFunc(stacks, func(a, b Stack) int { return slices.CompareFunc(a.Frames, b.Frames, compareFrames) })
	var out []Stack
	for _, s := range stacks {
		if n := len(out); n > 0 && slices.Equal(out[n-1].Frames, s.Frames) {
			out[n-1].NsPerPacket += s.NsPerPacket
			continue
		}
		out = append(out, s)
	}
	return out
}
