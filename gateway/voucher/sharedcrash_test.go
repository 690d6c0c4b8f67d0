// A test that a gateway's vouchers in a store survive kill -9 of the gateway.

package voucher

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/allowance/allowancetest"
	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/internal/redistest"
)

// TestSharedKill: of sessions that end while their gateway is killed each that was answered is counted once, at all
// gateways; of the others none keeps a place.
func TestSharedKill(t *testing.T) {
	if folder := allowancetest.Folder(); folder != "" {
		useAndEnd(t, folder)
		return
	}
	server, folder := redistest.Start(t, redistest.Place{}), t.TempDir()
	netnstest.Must(t, os.WriteFile(filepath.Join(folder, "server"), []byte(server.Addr), 0o600))
	two := joinBook(t, server, "gw2", t.TempDir())
	made, err := two.Create("lobby", 1000, Terms{Devices: 1, Bytes: gigabyte})
	netnstest.Must(t, err)
	answered := map[string]bool{}
	for _, after := range []int{1, 17, 60} {
		for _, name := range allowancetest.Killed(t, folder, after) {
			answered[name] = true
		}
		one := joinBook(t, server, "gw1", folder)
		ready(one, two)
		netnstest.Await(t, "both gateways have counted all", func() error {
			var wrong error
			for _, m := range []*member{one, two} {
				n := 0
				err := m.Each("lobby", func(v Voucher) bool {
					n++
					if v.Sessions != 0 || v.UsedBytes != 0 && v.UsedBytes != 100 || answered[v.Name] && v.UsedBytes != 100 {
						wrong = fmt.Errorf("%s: %+v, answered: %v", m.name, v, answered[v.Name])
					}
					return wrong == nil
				})
				if err = errors.Join(err, wrong); err == nil && n != len(made) {
					err = fmt.Errorf("%s has %d vouchers", m.name, n)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
		one.leave()
	}
	if len(answered) < 78 {
		t.Errorf("%d sessions were answered", len(answered))
	}
}

// useAndEnd has several devices use vouchers that nobody has used, and tells the name of each whose end is accounted.
func useAndEnd(t *testing.T, folder string) {
	addr, err := os.ReadFile(filepath.Join(folder, "server"))
	netnstest.Must(t, err)
	one := joinBook(t, &redistest.Server{Addr: string(addr)}, "gw1", folder)
	ready(one)
	var all []Voucher
	netnstest.Must(t, one.Each("lobby", func(v Voucher) bool {
		if v.State == New {
			all = append(all, v)
		}
		return true
	}))
	var devices sync.WaitGroup
	for d := range 8 {
		devices.Go(func() {
			for i := d; i < len(all); i += 8 {
				if err := one.logIn(all[i].Code, i); err != nil {
					t.Error(err)
					return
				}
				one.table.Use(device(i).Addr, 100)
				one.logOut(i)
				allowancetest.Done(all[i].Name)
			}
		})
	}
	devices.Wait()
}
