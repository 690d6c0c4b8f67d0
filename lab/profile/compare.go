package profile

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// Cost is what a function costs the router with the device and the clean router, ns per packet.
type Cost struct {
	DUT, Clean float64
	// variance is that of the difference (ns² per packet²), as far as it comes from the number of samples. The samples of
	// an account are taken as a multinomial draw, which shares out the account's time.
	variance float64
}

// Difference is how much more the device needs than the clean router, ns per packet.
func (c Cost) Difference() float64 { return c.DUT - c.Clean }

// Margin is half the width of the difference's 95 % interval, ns per packet. It comes from the number of samples alone,
// and does not know how the routers differ from block to block.
func (c Cost) Margin() float64 { return 1.96 * math.Sqrt(c.variance) }

// add adds another cost, whose samples are independent of this one's.
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
	Rows []Row // largest difference in the function itself (Row.Self) first
	Sum  Cost  // sum of all rows: what the routers cost in the profile's window
}

// Explain adds up the time of each function over all stacks. Rows with the largest difference, in either direction,
// come first. The rows' Self add up to the whole cost of both routers.
func Explain(p Profile) Explanation {
	type place struct { // a function in one account
		account string
		Frame
	}
	self, total := map[place]*[2]float64{}, map[place]*[2]float64{} // ns per packet of the device and the clean router
	for side, s := range []Side{p.DUT, p.Clean} {
		for _, st := range s.Stacks {
			enter := func(m map[place]*[2]float64, f Frame) {
				at := place{st.Frames[0].Func, f}
				if m[at] == nil {
					m[at] = &[2]float64{}
				}
				m[at][side] += st.NsPerPacket
			}
			enter(self, st.Frames[len(st.Frames)-1])
			for i, f := range st.Frames[1:] {
				if !slices.Contains(st.Frames[1:1+i], f) { // a recursive function counts once
					enter(total, f)
				}
			}
		}
	}
	rows := map[Frame]*Row{}
	byAccount := func(a, b place) int { return cmp.Compare(a.account, b.account) } // float sums depend on their order
	for _, at := range slices.SortedStableFunc(maps.Keys(self), byAccount) {
		if rows[at.Frame] == nil {
			rows[at.Frame] = &Row{Frame: at.Frame}
		}
		rows[at.Frame].Self.add(p.cost(at.account, self[at][0], self[at][1]))
	}
	for _, at := range slices.SortedStableFunc(maps.Keys(total), byAccount) {
		if r := rows[at.Frame]; r != nil {
			r.Total.add(p.cost(at.account, total[at][0], total[at][1]))
		}
	}
	var e Explanation
	for _, r := range rows {
		e.Rows = append(e.Rows, *r)
	}
	slices.SortFunc(e.Rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(math.Abs(b.Self.Difference()), math.Abs(a.Self.Difference())),
			compareFrames(a.Frame, b.Frame))
	})
	for _, r := range e.Rows {
		e.Sum.DUT += r.Self.DUT
		e.Sum.Clean += r.Self.Clean
	}
	return e
}

// Rest adds up the rows from index n on, and counts them. The margin of the sum treats the rows as independent.
func (e Explanation) Rest(n int) (rest Cost, rows int) {
	for _, r := range e.Rows[min(n, len(e.Rows)):] {
		rest.add(r.Self)
		rows++
	}
	return rest, rows
}

// cost makes a Cost of the ns per packet that both routers spent in an account, or in a part of it.
func (p Profile) cost(account string, dut, clean float64) Cost {
	return Cost{dut, clean, p.DUT.variance(account, dut) + p.Clean.variance(account, clean)}
}

// variance returns the variance of v ns per packet, a part of an account's time that was found by the account's
// samples.
func (s Side) variance(account string, v float64) float64 {
	a := s.account(account)
	whole := float64(a.Ns) / float64(max(s.Packets, 1))
	if a.Samples == 0 || whole <= 0 {
		return 0
	}
	share := min(1, v/whole)
	return whole * whole * share * (1 - share) / float64(a.Samples)
}

// Node is a function in the tree of both routers' stacks.
type Node struct {
	Frame
	Cost     // of the function and all that it calls here
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

// insert adds a stack below n. side is 0 for the device's router and 1 for the clean one.
func (n *Node) insert(side int, st Stack) {
	for _, f := range st.Frames {
		i := slices.IndexFunc(n.Children, func(c *Node) bool { return c.Frame == f })
		if i < 0 {
			i = len(n.Children)
			n.Children = append(n.Children, &Node{Frame: f})
		}
		n = n.Children[i]
		*[]*float64{&n.DUT, &n.Clean}[side] += st.NsPerPacket
	}
}

// finish sets the variances of n and all nodes below it, and sorts their children. account is the name of the account
// that n belongs to.
func (n *Node) finish(p Profile, account string) {
	n.Cost = p.cost(account, n.DUT, n.Clean)
	slices.SortFunc(n.Children, func(a, b *Node) int { return compareFrames(a.Frame, b.Frame) })
	for _, c := range n.Children {
		c.finish(p, account)
	}
}
