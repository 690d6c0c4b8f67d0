package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// Devices are the devices of a network that are remembered after a login. Its methods may be called at any time from
// several goroutines.
type Devices interface {
	// Remembered lists them by MAC address.
	Remembered() []Device
	// Forget forgets one, and ends its session if it came in without a login. found is false where it is not remembered.
	Forget(mac [6]byte) (found bool, err error)
}

// Device is a device that is remembered after a login.
type Device struct {
	Network string    `json:"network,omitempty"` // that remembers it; left out: there is only one
	MAC     string    `json:"mac"`               // of the device
	User    string    `json:"user"`              // who logged in
	Since   time.Time `json:"since"`             // when
	Until   time.Time `json:"until"`             // when it must log in again
}

// ForgetRequest forgets remembered devices: one, a user's, or all. Exactly one of them is set.
type ForgetRequest struct {
	MAC  string `json:"mac,omitempty"`  // one device
	User string `json:"user,omitempty"` // all devices of a user
	All  bool   `json:"all,omitempty"`  // all devices
}

// ForgetReply is the number of devices forgotten.
type ForgetReply struct {
	Forgotten int `json:"forgotten"`
}

// listDevices answers with the remembered devices of all networks.
func (s *server) listDevices(w http.ResponseWriter, _ *http.Request) {
	all := []Device{}
	for _, n := range s.Networks() {
		if n.Devices == nil {
			continue
		}
		for _, d := range n.Devices.Remembered() {
			d.Network = n.Name
			all = append(all, d)
		}
	}
	reply(w, http.StatusOK, all)
}

// forget forgets remembered devices, in all networks that remember them.
func (s *server) forget(w http.ResponseWriter, r *http.Request) {
	var req ForgetRequest
	err := readRequest(http.MaxBytesReader(w, r.Body, maxBodyBytes), &req)
	var mac [6]byte
	if err == nil && req.MAC != "" {
		mac, err = parseMAC(req.MAC)
	}
	given := len(slices.DeleteFunc([]bool{req.MAC != "", req.User != "", req.All}, func(set bool) bool { return !set }))
	if err == nil && given != 1 {
		err = errors.New("give one of mac, user and all")
	}
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	var done ForgetReply
	for _, n := range s.Networks() {
		if n.Devices == nil {
			continue
		}
		for _, d := range n.Devices.Remembered() {
			own, err := parseMAC(d.MAC)
			if err != nil || req.MAC != "" && own != mac || req.User != "" && !session.SameUser(req.User, d.User) {
				continue
			}
			found, err := n.Devices.Forget(own)
			if err != nil {
				fail(w, http.StatusInternalServerError, fmt.Errorf("after %d devices: %w", done.Forgotten, err))
				return
			}
			if found {
				done.Forgotten++
			}
		}
	}
	if done.Forgotten == 0 && !req.All {
		fail(w, http.StatusNotFound, fmt.Errorf("no such device is remembered: %s", req.MAC+req.User))
		return
	}
	reply(w, http.StatusOK, done)
}

// Devices lists the devices that are remembered after a login, by network and MAC address.
func (c *Client) Devices(ctx context.Context) (all []Device, err error) {
	return all, c.call(ctx, answerTimeout, http.MethodGet, "/v1/devices", nil, &all)
}

// Forget forgets remembered devices.
func (c *Client) Forget(ctx context.Context, req ForgetRequest) (r ForgetReply, err error) {
	return r, c.call(ctx, logoutTimeout+answerTimeout, http.MethodPost, "/v1/devices/forget", req, &r)
}
