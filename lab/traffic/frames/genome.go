package frames

import (
	"fmt"
	"slices"
	"strings"
)

// letterSizes are the sizes that RFC 6985 has letters for, bytes with FCS.
var letterSizes = map[byte]int{
	'a': 64, 'b': 128, 'c': 256, 'd': 512, 'e': 1024, 'f': 1280, 'g': 1518, 'h': 2112, 'i': 9000}

// Genome returns the text of a sequence of sizes (RFC 6985), one letter a frame. Sizes without a letter of the RFC get
// capitals, in the order in which they come. custom has the size of each capital, in bytes with FCS as the RFC counts.
func Genome(list []Frame) (text string, custom map[string]int, err error) {
	known := map[int]byte{}
	for letter, bytes := range letterSizes {
		known[bytes] = letter
	}
	custom = map[string]int{}
	var b strings.Builder
	for _, f := range list {
		bytes := int(f.Bytes) + fcs
		letter, ok := known[bytes]
		if !ok {
			if len(custom) == 26 {
				return "", nil, fmt.Errorf("a genome has letters for 26 sizes beside those of RFC 6985: the sequence has more")
			}
			letter = 'A' + byte(len(custom))
			known[bytes] = letter
			custom[string(letter)] = bytes
		}
		b.WriteByte(letter)
	}
	return b.String(), custom, nil
}

// OfGenome returns the sizes that a genome's text describes; after its end it begins again. custom has the size of each
// capital, in bytes with FCS.
func OfGenome(text string, custom map[string]int) (Sizes, error) {
	s := Sizes{Name: text}
	for i := range len(text) {
		bytes, ok := letterSizes[text[i]]
		if capital := text[i] >= 'A' && text[i] <= 'Z'; capital {
			bytes, ok = custom[text[i:i+1]]
		}
		if !ok {
			return Sizes{}, fmt.Errorf(
				"genome %q, letter %d: %q stands for no size: RFC 6985 has a to i, capitals are given with their sizes", text, i+1,
				text[i])
		}
		if err := checkSize(bytes - fcs); err != nil {
			return Sizes{}, fmt.Errorf("genome %q, letter %d, %d bytes with FCS: %w", text, i+1, bytes, err)
		}
		s.sequence = append(s.sequence, uint16(bytes-fcs))
	}
	if len(s.sequence) == 0 {
		return Sizes{}, fmt.Errorf("the genome is empty: give letters of RFC 6985, as aaaaaaaAAAAg for an IMIX with A=594")
	}
	s.shares = sharesOf(s.sequence)
	return s, nil
}

// sharesOf counts how often each size is in a sequence.
func sharesOf(sequence []uint16) (list []share) {
	frames := map[uint16]uint32{}
	for _, b := range sequence {
		frames[b]++
	}
	for bytes, n := range frames {
		list = append(list, share{bytes, n})
	}
	slices.SortFunc(list, func(a, b share) int { return int(a.bytes) - int(b.bytes) })
	return list
}
