package dhcp6

import "net/netip"

// space knows which blocks of a pool of prefixes are free, as a binary tree: the children of a block are its halves. So
// it finds a free prefix of any length within 128 steps, also the last one, and never gives out overlapping ones. It
// takes some 40 bytes for each bit of each prefix in use.
type space struct {
	pool netip.Prefix
	root *block
}

// block is a part of a space that is not wholly free: nil stands for one that is.
type block struct {
	halves [2]*block
	taken  bool
	free   int // length of the largest prefix free in it, in bits; noneFree: there is none
}

const noneFree = 129

// largest is the length of the largest prefix free in a block that begins at a depth.
func (b *block) largest(depth int) int {
	switch {
	case b == nil:
		return depth
	case b.taken:
		return noneFree
	}
	return b.free
}

// fits reports whether a prefix of a length is free in the pool.
func (s *space) fits(length int) bool {
	depth := s.pool.Bits()
	return depth <= length && s.root.largest(depth) <= length
}

// take takes a free prefix of a length, that of an address where it is free. false: none is.
func (s *space) take(length int, wish netip.Addr) (netip.Prefix, bool) {
	if !s.fits(length) {
		return netip.Prefix{}, false
	}
	bits := s.pool.Addr().As16()
	s.root = s.root.take(s.pool.Bits(), length, wish.As16(), &bits)
	return netip.PrefixFrom(netip.AddrFrom16(bits), length), true
}

// take takes a prefix from a block in which one fits, sets the bits by which it went, and returns the block after that.
func (b *block) take(depth, length int, wish [16]byte, bits *[16]byte) *block {
	if b == nil {
		b = &block{}
	}
	if depth == length {
		b.taken = true
		return b
	}
	half := bitAt(wish, depth)
	if b.halves[half].largest(depth+1) > length {
		half = 1 - half
	}
	if half == 1 {
		bits[depth/8] |= 0x80 >> (depth % 8)
	}
	b.halves[half] = b.halves[half].take(depth+1, length, wish, bits)
	b.free = min(b.halves[0].largest(depth+1), b.halves[1].largest(depth+1))
	return b
}

// claim takes a prefix of the pool, and reports whether it was free.
func (s *space) claim(prefix netip.Prefix) bool {
	if !s.has(prefix) || !s.isFree(prefix) {
		return false
	}
	s.take(prefix.Bits(), prefix.Addr())
	return true
}

// isFree reports whether nothing of a prefix of the pool is taken.
func (s *space) isFree(prefix netip.Prefix) bool {
	bits, at := prefix.Addr().As16(), s.root
	for depth := s.pool.Bits(); depth < prefix.Bits() && at != nil && !at.taken; depth++ {
		at = at.halves[bitAt(bits, depth)]
	}
	return at == nil
}

// has reports whether a prefix is of the pool.
func (s *space) has(prefix netip.Prefix) bool {
	return s.pool.Bits() <= prefix.Bits() && s.pool.Contains(prefix.Addr())
}

// release frees a prefix that was taken; others it leaves as they are.
func (s *space) release(prefix netip.Prefix) {
	if s.has(prefix) {
		s.root = s.root.release(s.pool.Bits(), prefix.Bits(), prefix.Addr().As16())
	}
}

func (b *block) release(depth, length int, bits [16]byte) *block {
	switch {
	case b == nil || b.taken != (depth == length):
		return b
	case b.taken:
		return nil
	}
	half := bitAt(bits, depth)
	if depth < length {
		b.halves[half] = b.halves[half].release(depth+1, length, bits)
	}
	if b.halves[0] == nil && b.halves[1] == nil {
		return nil
	}
	b.free = min(b.halves[0].largest(depth+1), b.halves[1].largest(depth+1))
	return b
}

func bitAt(bits [16]byte, n int) int { return int(bits[n/8]>>(7-n%8)) & 1 }
