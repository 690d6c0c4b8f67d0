package session

import "github.com/gateweigh/gateweigh/gateway/datapath"

// Store keeps the records of a table, on a disk or elsewhere. A table reads it from several goroutines at the same
// time, and writes it from one.
type Store interface {
	// Clients calls visit with each client's record, in the order of identities, until visit fails. Records are valid
	// during the call.
	Clients(visit func(id datapath.ID, record []byte) error) error
	// Events calls visit with the events whose numbers are from or more, the oldest first, as long as it returns more.
	// Records are valid during the call.
	Events(from uint64, visit func(number uint64, record []byte) (more bool, err error)) error
	// Write carries out a batch, completely or not at all, and returns when it will outlast a crash. removed is how many
	// of the events in Done existed.
	Write(Batch) (removed int, err error)
	Close() error
}

// Record is the new record of a client.
type Record struct {
	ID   datapath.ID
	Data []byte // nil: the client is deleted
}

// Batch is a change of a store.
type Batch struct {
	Clients []Record // in any order; the last record of a client is the one that stays
	Events  [][]byte // events to be added, in this order; each gets the next number
	Done    []uint64 // numbers of events to be deleted; a number without an event is no error
}
