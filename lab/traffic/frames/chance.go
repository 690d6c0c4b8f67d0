package frames

import "math/bits"

// chooseBelow maps 64 random bits to one of the numbers 0 to n-1.
func chooseBelow(random uint64, n int64) int64 {
	hi, _ := bits.Mul64(random, uint64(n))
	return int64(hi)
}

// exponential returns -ln(u) for a random u in (0, 1], in units of 2⁻³². It is the same on all architectures;
// floating-point logarithms differ in their last bit. It interpolates the logarithm to base 2 from a table (error below
// 2·10⁻⁷), and multiplies it by ln 2.
func exponential(random uint64) uint64 {
	const ln2 = 12786308645202655660 // · 2⁻⁶⁴
	random |= 1
	zeros := bits.LeadingZeros64(random)
	fraction := random << zeros << 1 // u = 2^-(zeros+1) · (1 + fraction·2⁻⁶⁴)
	i, between := fraction>>54, fraction>>22&(1<<32-1)
	log := log2Table[i] + (log2Table[i+1]-log2Table[i])*between>>32
	hi, _ := bits.Mul64(uint64(zeros+1)<<32-log, ln2)
	return hi
}

// log2Table are log2(1 + i/1024), in units of 2⁻³².
var log2Table = func() (table [1025]uint64) {
	for i := range table[:1024] {
		x := uint64(1024+i) << 52 // 1 to 2, in units of 2⁻⁶²
		for range 32 {            // squaring doubles the logarithm: its next digit is 1 where x reaches 2
			hi, lo := bits.Mul64(x, x)
			x = hi<<2 | lo>>62
			table[i] = table[i]<<1 | x>>63
			x >>= x >> 63
		}
	}
	table[1024] = 1 << 32
	return table
}()
