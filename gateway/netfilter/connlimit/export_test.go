package connlimit

import (
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/netfilter/nftables"
)

// Look does what Run does each second.
func (l *Limiter) Look() { l.look(func() bool { return false }) }

// Hold leaves a client as it is where counting its connections has failed: its new ones wait.
func (l *Limiter) Hold(id datapath.ID) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clients[id].waits = true
	b := &nftables.Batch{}
	hold(b, l.table, id)
	return l.conn.Commit(b)
}
