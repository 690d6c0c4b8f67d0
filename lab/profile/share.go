package profile

import (
	"cmp"
	"slices"
)

// Router says which threads and processes are one router's, and what each of
// them cost in the window.
type Router struct {
	FromNs, ToNs  int64 // the window, by the clock of the samples
	Seconds       float64
	Packets       int64
	DeliveredMbps float64
	Threads       map[int]string   // account by thread id
	Processes     map[int]string   // account by process id; of its descendants too
	Ns            map[string]int64 // exact on-CPU time by account
}

// Side shares each account's exact time out among the stacks its samples show.
// Processes that descend from one of the router's are on its account. Time of
// an account without samples is kept on a function that says so.
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

// maxAncestors bounds the way up to a process's ancestors: ids are used again,
// so that the records of a long recording might form a circle.
const maxAncestors = 64

// account names the account a sample is on, "" when it is not the router's.
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

// share gives every sample of an account the same part of its exact time.
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

// mergeStacks adds up equal stacks and sorts them by their frames.
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
