package profile

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// Cost is what a function costs both routers, ns per packet.
type Cost struct {
	DUT, Clean float64
	// variance of the difference by the number of samples: each account's time
	// is shared out by a multinomial draw.
	variance float64
}

// Difference is what the device needs more than the clean router.
func (c Cost) Difference() float64 { return c.DUT - c.Clean }

// Margin is half the width of the difference's 95 % interval, by the number of
// samples alone: it does not know how the routers differ from block to block.
func (c Cost) Margin() float64 { return 1.96 * math.Sqrt(c.variance) }

func (c *Cost) add(o Cost) {
	c.DUT += o.DUT
	c.Clean += o.Clean
	c.variance += o.variance
}

// Row is one function of an explanation.
type Row struct {
	Frame
	Self  Cost // in the function itself: these add up
	Total Cost // with what it calls
}

// Explanation says which functions the difference of two routers consists of.
type Explanation struct {
	Rows []Row // by the size of the difference in the function itself
	Sum  Cost  // of all rows: what the routers cost in the profile's window
}

// Explain adds up each function's own time over all stacks. Rows with the
// largest difference, in either direction, come first; all rows together are
// the whole cost of both routers.
func Explain(p Profile) Explanation {
	self, total := map[Frame]*sums{}, map[Frame]*sums{}
	for side, s := range []Side{p.DUT, p.Clean} {
		for _, st := range s.Stacks {
			at(self, st.Frames[len(st.Frames)-1]).add(side, st)
			seen := map[Frame]bool{}
			for _, f := range st.Frames[1:] { // a recursive function counts once
				if !seen[f] {
					at(total, f).add(side, st)
				}
				seen[f] = true
			}
		}
	}
	var e Explanation
	for f, s := range self {
		e.Rows = append(e.Rows, Row{f, s.cost(p), at(total, f).cost(p)})
	}
	slices.SortFunc(e.Rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(math.Abs(b.Self.Difference()), math.Abs(a.Self.Difference())), compareFrames(a.Frame, b.Frame))
	})
	for _, r := range e.Rows {
		e.Sum.DUT += r.Self.DUT
		e.Sum.Clean += r.Self.Clean
	}
	return e
}

// Rest adds up the rows from number n on. Its margin treats them as independent.
func (e Explanation) Rest(n int) (rest Cost, rows int) {
	for _, r := range e.Rows[min(n, len(e.Rows)):] {
		rest.add(r.Self)
		rows++
	}
	return rest, rows
}

// sums is time by side and account.
type sums [2]map[string]float64

func at(m map[Frame]*sums, f Frame) *sums {
	s, ok := m[f]
	if !ok {
		s = &sums{{}, {}}
		m[f] = s
	}
	return s
}

func (s *sums) add(side int, st Stack) { s[side][st.Frames[0].Func] += st.NsPerPacket }

func (s *sums) cost(p Profile) Cost {
	var c Cost
	for side, router := range []Side{p.DUT, p.Clean} {
		for _, account := range slices.Sorted(maps.Keys(s[side])) { // float sums depend on their order
			v := s[side][account]
			if side == 0 {
				c.DUT += v
			} else {
				c.Clean += v
			}
			c.variance += router.variance(account, v)
		}
	}
	return c
}

// variance of v ns per packet of an account, shared out by its samples.
func (s Side) variance(account string, v float64) float64 {
	a := s.account(account)
	whole := float64(a.Ns) / float64(max(s.Packets, 1))
	if a.Samples == 0 || whole <= 0 {
		return 0
	}
	share := min(1, v/whole)
	return whole * whole * share * (1 - share) / float64(a.Samples)
}

// Node is a frame in the tree of both routers' stacks.
type Node struct {
	Frame
	Cost     // with all below it
	Children []*Node
}

// Tree puts the stacks of both routers into one tree. Its root has no name; the
// accounts are its children. Children are sorted by name, so that the same code
// stands at the same place in every view.
func Tree(p Profile) *Node {
	root := &Node{}
	for side, s := range []Side{p.DUT, p.Clean} {
		for _, st := range s.Stacks {
			root.insert(side, st)
		}
	}
	for _, account := range root.Children {
		account.finish(p, account.Func)
		root.Cost.add(account.Cost)
	}
	slices.SortFunc(root.Children, func(a, b *Node) int { return compareFrames(a.Frame, b.Frame) })
	return root
}

func (n *Node) insert(side int, st Stack) {
	for _, f := range st.Frames {
		i := slices.IndexFunc(n.Children, func(c *Node) bool { return c.Frame == f })
		if i < 0 {
			i = len(n.Children)
			n.Children = append(n.Children, &Node{Frame: f})
		}
		n = n.Children[i]
		if side == 0 {
			n.DUT += st.NsPerPacket
		} else {
			n.Clean += st.NsPerPacket
		}
	}
}

func (n *Node) finish(p Profile, account string) {
	n.variance = p.DUT.variance(account, n.DUT) + p.Clean.variance(account, n.Clean)
	slices.SortFunc(n.Children, func(a, b *Node) int { return compareFrames(a.Frame, b.Frame) })
	for _, c := range n.Children {
		c.finish(p, account)
	}
}
