package voucher

import "errors"

// Store keeps the records of a book, on a disk or elsewhere. Its methods may be called from several goroutines. Records
// that are visited are valid during the call.
type Store interface {
	// Batches calls visit with each batch and the ID of its first voucher, in the order of these, until visit fails.
	Batches(visit func(first ID, record []byte) error) error
	// Vouchers calls visit with the vouchers whose IDs are from or more, in their order, as long as it returns more.
	Vouchers(from ID, visit func(id ID, record []byte) (more bool, err error)) error
	// Find returns the ID of the voucher with a code; 0: there is none.
	Find(Code) (ID, error)
	// Write carries out a change, completely or not at all, and returns when it will outlast a crash. It fails with
	// ErrChanged if a record is not what the change says that it was, or a code is another voucher's.
	Write(Change) error
	Close() error
}

// ErrChanged means that somebody else has changed a record meanwhile.
var ErrChanged = errors.New("the voucher was changed meanwhile")

// Change is a change of a store.
type Change struct {
	Batches  []Record // new ones, by the IDs of their first vouchers
	Vouchers []Record

	// Of a shared book's file alone: ends of sessions that wait for the store, and the IDs of sessions whose ends are
	// there.
	kept    []keptEnd
	settled []string
}

// Record is the change of one record.
type Record struct {
	ID   ID
	Was  []byte // nil: it is new
	Is   []byte
	Code Code // of a new voucher, by which Find finds it

	version uint64 // in a store that gateways share; 0: it is in none
}
