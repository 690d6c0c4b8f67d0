package session

import (
	"slices"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// order has the identities of all clients in their order, so that a page of clients costs the same however many there
// are. It is a list of sorted blocks: a new identity moves the rest of its block alone.
type order struct{ blocks [][]datapath.ID }

const blockSize = 512 // identities, at most

// find returns the block that an identity belongs to, and its place there.
func (o *order) find(id datapath.ID) (block, place int, found bool) {
	block, _ = slices.BinarySearchFunc(o.blocks, id, func(b []datapath.ID, id datapath.ID) int {
		if b[len(b)-1] < id {
			return -1
		}
		return 1
	})
	if block == len(o.blocks) {
		return block, 0, false
	}
	place, found = slices.BinarySearch(o.blocks[block], id)
	return block, place, found
}

// add adds an identity; one that is there stays there once.
func (o *order) add(id datapath.ID) {
	block, place, found := o.find(id)
	switch {
	case found:
		return
	case block == len(o.blocks) && block == 0:
		o.blocks = append(o.blocks, []datapath.ID{id})
		return
	case block == len(o.blocks): // behind the last one
		block--
		place = len(o.blocks[block])
	}
	b := slices.Insert(o.blocks[block], place, id)
	o.blocks[block] = b
	if len(b) > blockSize {
		half := len(b) / 2
		o.blocks = slices.Insert(o.blocks, block+1, slices.Clone(b[half:]))
		o.blocks[block] = slices.Clip(b[:half])
	}
}

// remove removes an identity.
func (o *order) remove(id datapath.ID) {
	block, place, found := o.find(id)
	if !found {
		return
	}
	if o.blocks[block] = slices.Delete(o.blocks[block], place, place+1); len(o.blocks[block]) == 0 {
		o.blocks = slices.Delete(o.blocks, block, block+1)
	}
}

// from appends up to most identities to list, those that are from or later.
func (o *order) from(list []datapath.ID, from datapath.ID, most int) []datapath.ID {
	block, place, _ := o.find(from)
	for ; block < len(o.blocks) && len(list) < most; block, place = block+1, 0 {
		rest := o.blocks[block][place:]
		list = append(list, rest[:min(len(rest), most-len(list))]...)
	}
	return list
}
