package frames

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// maxPeriod is the longest period, frames. Weights that need a longer one are rounded to it: the share of
// a size is then wrong by at most a millionth.
const maxPeriod = 1 << 20

// Weight is how often a size occurs in comparison with the others.
type Weight struct {
	Bytes  int
	Weight float64 // at least 0; decimals are taken as they are written
}

// Sizes is a mix of frame sizes, or a sequence of them. The zero value has none.
//
// A mix has a period, the shortest number of frames in which each size can have its exact share. Each
// period of a plan has exactly these frames, shuffled by the plan's seed.
type Sizes struct {
	Name     string
	shares   []share  // of a period, by ascending size
	sequence []uint16 // a capture's sizes as they came; nil: the period is shuffled
}

// share is the number of frames of a period with one size.
type share struct {
	bytes  uint16
	frames uint32
}

// mixes are the published mixes. Where a source counts IP packets, 14 bytes of Ethernet are added,
// and what is then shorter than Ethernet's least frame is as long as that.
var mixes = []struct {
	name    string
	weights []Weight
}{
	// 7:4:1 of IP packets of 40, 576 and 1500 bytes, and 7:4:1 of frames of 64, 594 and 1518 bytes with FCS: the same
	// frames.
	{"imix", []Weight{{60, 7}, {590, 4}, {1514, 1}}},
	// The same with the shortest frame that IPv6 leaves for the stamp.
	{"imix6", []Weight{{MinBytes6, 7}, {590, 4}, {1514, 1}}},
	// Schneider, Wallerich (study 5), section 2: packets with peaks at 40–64, 576 and 1420–1500 bytes, 920 Mbit/s at
	// about 180,000 packets/s, which is a mean of 639 bytes. The paper gives no shares. These have the three
	// peaks and that mean (640 bytes): 53 % spread over 40 to 64, 10 % at 576, 37 % spread over 1420 to 1500.
	{"study5", []Weight{
		{60, 106}, {66, 53}, {72, 53}, {78, 53}, // 40 and 46, 52, 58, 64
		{590, 50},
		{1434, 37}, {1454, 37}, {1474, 37}, {1494, 37}, {1514, 37},
	}},
	// CAIDA, May 1999: IP packets of 413 bytes in the mean, 93 in the median; 5th, 25th, 75th and 95th percentile
	// 40, 40, 576 and 1500. These four sizes have all six figures.
	{"caida", []Weight{{60, 200}, {107, 75}, {590, 158}, {1514, 67}}},
}

// MixNames are the mixes that Named knows.
func MixNames() []string {
	names := make([]string, len(mixes))
	for i, m := range mixes {
		names[i] = m.name
	}
	return names
}

// Named returns a published mix by its name ("imix"), or one size by its bytes ("60").
func Named(name string) (Sizes, error) {
	for _, m := range mixes {
		if m.name == name {
			return Histogram(name, m.weights)
		}
	}
	bytes, err := strconv.Atoi(name)
	if err != nil {
		return Sizes{}, fmt.Errorf(
			"frame sizes %q: give bytes from %d to %d, or one of %s", name, MinBytes, MaxBytes, strings.Join(MixNames(), ", "))
	}
	return Histogram(name, []Weight{{bytes, 1}})
}

// Histogram returns a mix of its own. A size may come more than once; sizes without weight are left out.
func Histogram(name string, weights []Weight) (Sizes, error) {
	sum := map[uint16]*big.Rat{}
	for _, w := range weights {
		if err := checkSize(w.Bytes); err != nil {
			return Sizes{}, fmt.Errorf("sizes %s: %w", name, err)
		}
		r, err := exactDecimal(w.Weight)
		if err != nil || r.Sign() < 0 {
			return Sizes{}, fmt.Errorf(
				"sizes %s: the weight of %d bytes is %v: weights are numbers from 0 on", name, w.Bytes, w.Weight)
		}
		addWeight(sum, uint16(w.Bytes), r)
	}
	return mix(name, sum)
}

func addWeight(sum map[uint16]*big.Rat, bytes uint16, weight *big.Rat) {
	if weight.Sign() == 0 {
		return
	}
	if sum[bytes] == nil {
		sum[bytes] = new(big.Rat)
	}
	sum[bytes].Add(sum[bytes], weight)
}

func checkSize(bytes int) error {
	if bytes < MinBytes || bytes > MaxBytes {
		return fmt.Errorf("a frame of %d bytes: frames have %d to %d, counted from the destination's MAC address without FCS",
			bytes, MinBytes, MaxBytes)
	}
	return nil
}

// exactDecimal is a decimal as it is written, to 12 digits.
func exactDecimal(x float64) (*big.Rat, error) {
	r, ok := new(big.Rat).SetString(strconv.FormatFloat(x, 'g', 12, 64))
	if !ok {
		return nil, fmt.Errorf("%v is not a number", x)
	}
	return r, nil
}

// mix makes whole frames of weights.
func mix(name string, weights map[uint16]*big.Rat) (Sizes, error) {
	if len(weights) == 0 {
		return Sizes{}, fmt.Errorf("sizes %s: no size has a weight above 0", name)
	}
	s := Sizes{Name: name}
	for bytes := range weights {
		s.shares = append(s.shares, share{bytes: bytes})
	}
	slices.SortFunc(s.shares, func(a, b share) int { return int(a.bytes) - int(b.bytes) })
	whole, total := wholeWeights(s.shares, weights)
	if total.Cmp(big.NewInt(maxPeriod)) > 0 {
		roundShares(s.shares, whole, total)
		return s, nil
	}
	for i := range s.shares {
		s.shares[i].frames = uint32(whole[i].Uint64())
	}
	return s, nil
}

// wholeWeights are the weights as whole numbers without a common divisor, and their sum.
func wholeWeights(shares []share, weights map[uint16]*big.Rat) (whole []*big.Int, total *big.Int) {
	denominator := big.NewInt(1)
	for _, s := range shares {
		d := weights[s.bytes].Denom()
		g := new(big.Int).GCD(nil, nil, denominator, d)
		denominator.Mul(denominator, new(big.Int).Div(d, g))
	}
	divisor := new(big.Int)
	for _, s := range shares {
		w := weights[s.bytes]
		n := new(big.Int).Mul(w.Num(), new(big.Int).Div(denominator, w.Denom()))
		whole = append(whole, n)
		divisor.GCD(nil, nil, divisor, n)
	}
	total = new(big.Int)
	for _, n := range whole {
		total.Add(total, n.Div(n, divisor))
	}
	return whole, total
}

// roundShares gives maxPeriod frames to the sizes by the largest remainder, at least one to each.
func roundShares(shares []share, whole []*big.Int, total *big.Int) {
	type rest struct {
		at   int
		part *big.Int
	}
	spare := big.NewInt(int64(maxPeriod - len(shares)))
	left := uint32(maxPeriod)
	rests := make([]rest, len(shares))
	for i, n := range whole {
		floor, part := new(big.Int).DivMod(new(big.Int).Mul(n, spare), total, new(big.Int))
		shares[i].frames = 1 + uint32(floor.Uint64())
		left -= shares[i].frames
		rests[i] = rest{i, part}
	}
	slices.SortStableFunc(rests, func(a, b rest) int { return b.part.Cmp(a.part) })
	for _, r := range rests[:left] {
		shares[r.at].frames++
	}
}

func (s Sizes) empty() bool { return len(s.shares) == 0 }

// Shortest returns the length of the shortest frame, bytes.
func (s Sizes) Shortest() int { return int(s.shares[0].bytes) }

// Longest is the largest size, bytes.
func (s Sizes) Longest() int { return int(s.shares[len(s.shares)-1].bytes) }

// Period returns the number of frames after which the sizes have exactly the shares of the mix. For a capture it is its
// length.
func (s Sizes) Period() int {
	n := 0
	for _, sh := range s.shares {
		n += int(sh.frames)
	}
	return n
}

// Shares are the sizes by ascending bytes, with the frames of each in a period.
func (s Sizes) Shares() []Weight {
	var list []Weight
	for _, sh := range s.shares {
		list = append(list, Weight{int(sh.bytes), float64(sh.frames)})
	}
	return list
}

// periodBytes is the sum of the bytes of a period's frames.
func (s Sizes) periodBytes() int64 {
	var sum int64
	for _, sh := range s.shares {
		sum += int64(sh.bytes) * int64(sh.frames)
	}
	return sum
}

// MeanBytes is the mean size.
func (s Sizes) MeanBytes() float64 { return float64(s.periodBytes()) / float64(s.Period()) }

func (s Sizes) order(seed uint64) order {
	switch {
	case s.sequence != nil:
		return &inSequence{list: s.sequence}
	case len(s.shares) == 1:
		return oneSize(s.shares[0].bytes)
	}
	deck := make([]uint16, 0, s.Period())
	for _, sh := range s.shares {
		for range sh.frames {
			deck = append(deck, sh.bytes)
		}
	}
	return &shuffled{deck: deck, chance: rand.NewPCG(seed, seedOfSizes)}
}

// Sizes and gaps have random numbers of their own, so neither changes the other.
const (
	seedOfSizes  = 1
	seedOfGaps   = 2
	seedOfPlaces = 3
)

type oneSize uint16

func (o oneSize) sizes(batch []Frame) {
	for i := range batch {
		batch[i].Bytes = uint16(o)
	}
}

// inSequence repeats a list.
type inSequence struct {
	list []uint16
	next int
}

func (o *inSequence) sizes(batch []Frame) {
	for i := range batch {
		batch[i].Bytes = o.list[o.next]
		if o.next++; o.next == len(o.list) {
			o.next = 0
		}
	}
}

// shuffled deals a deck, again and again. Each card is drawn from those not yet dealt (Fisher and
// Yates), so no period waits for a shuffle. All arithmetic is on whole numbers.
type shuffled struct {
	deck   []uint16
	next   int
	chance *rand.PCG
}

func (o *shuffled) sizes(batch []Frame) {
	deck, index := o.deck, o.next
	for i := range batch {
		j := index + int(chooseBelow(o.chance.Uint64(), int64(len(deck)-index)))
		deck[index], deck[j] = deck[j], deck[index]
		batch[i].Bytes = deck[index]
		if index++; index == len(deck) {
			index = 0
		}
	}
	o.next = index
}
