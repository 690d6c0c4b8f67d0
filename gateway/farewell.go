package gateway

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"path/filepath"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/pppoe"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// sessionsFile is the session table's file.
func sessionsFile(cfg *config.Config) string { return filepath.Join(cfg.StateDir, sessionsName) }

// sessionsName is the name of a network's file of sessions.
const sessionsName = "sessions.db"

// farewell ends the sessions of PPPoE clients at detach, because nobody will answer the clients' echo requests
// afterwards. It reads the sessions from the file, or, where a running daemon has the file open, asks that daemon.
func farewell(cfg *config.Config) error {
	var peers []pppoe.Peer
	err := session.Stored(sessionsFile(cfg), func(s session.Session) {
		if s.PPPoE.Session != 0 {
			peers = append(peers, pppoe.Peer{MAC: s.MAC, Session: s.PPPoE.Session})
		}
	})
	if errors.Is(err, session.ErrInUse) {
		peers, err = linesOf(cfg)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, session.ErrDamaged) { // nobody is known
		err = nil
	}
	return errors.Join(err, pppoe.TerminatePeers(cfg.LAN.Interface, peers))
}

// linesOf asks a daemon for its PPPoE sessions.
func linesOf(cfg *config.Config) (peers []pppoe.Peer, err error) {
	c, err := control.Dial(cfg.ControlSocket())
	if err != nil {
		return nil, err
	}
	filter := control.Filter{State: session.Authenticated, Network: cfg.Name}
	err = c.Sessions(context.Background(), filter, func(s control.Session) error {
		mac, err := net.ParseMAC(s.MAC)
		if s.PPPoE != 0 && err == nil && len(mac) == 6 {
			peers = append(peers, pppoe.Peer{MAC: [6]byte(mac), Session: s.PPPoE})
		}
		return nil
	})
	return peers, err
}
