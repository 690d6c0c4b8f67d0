// Package scale divides whole numbers into log-linear buckets, for distributions of times: small numbers have a bucket
// each, larger ones share buckets that widen with them.
//
//	Bits 3:  0 1 … 7 │ 8 9 … 15 │ 16-17 18-19 … 30-31 │ 32-35 36-39 … 60-63 │ …
package scale

import "math/bits"

// Scale is the binary logarithm of the number of buckets for each doubling, 0 to 63. With n = 2^Scale buckets, numbers
// below 2n have a bucket each. From there on, a bucket is no wider than its least number divided by n.
type Scale uint

// Place is the bucket of a number, from 0.
func (s Scale) Place(n uint64) int {
	shift := max(bits.Len64(n), int(s)+1) - int(s) - 1
	return shift<<s + int(n>>shift)
}

// Range is the least and the greatest number of the bucket at a place.
func (s Scale) Range(place int) (least, greatest uint64) {
	shift := max(place>>s-1, 0)
	least = uint64(place-shift<<s) << shift
	return least, least + 1<<shift - 1
}

// Size returns the number of buckets for numbers with the given number of bits, which must be more than s.
func (s Scale) Size(bits int) int { return (bits - int(s) + 1) << s }

// Quantile returns the range of the bucket with the quantile q, 0 to 1. counts are the numbers in each bucket, by its
// place. some is false if all counts are zero.
func (s Scale) Quantile(counts []uint64, q float64) (least, greatest uint64, some bool) {
	var total, passed uint64
	for _, n := range counts {
		total += n
	}
	if total == 0 {
		return 0, 0, false
	}
	rank := min(uint64(q*float64(total)), total-1) // of the number, from 0
	for place, n := range counts {
		if passed += n; passed > rank {
			least, greatest = s.Range(place)
			break
		}
	}
	return least, greatest, true
}
