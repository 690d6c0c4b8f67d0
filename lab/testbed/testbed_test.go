package testbed_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/testbed"
)

// TestMain lets the test binary serve as its own agent, as gateweigh does.
func TestMain(m *testing.M) {
	agent.RunAs(os.Args)
	os.Exit(m.Run())
}

func build(t *testing.T, p testbed.Portal) *testbed.Lab {
	t.Helper()
	placement, err := testbed.DefaultPlacement()
	if err != nil {
		t.Fatal(err)
	}
	p.Backend = testbed.Netns{Run: "test", LogDir: t.TempDir(), Placement: placement}
	lab, err := p.Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lab.Close() })
	return lab
}

func TestPortalForwardsBetweenMacvlanClientsAndServer(t *testing.T) {
	start := time.Now()
	lab := build(t, testbed.Portal{Lab: "a", Profile: testbed.PerPacket})
	t.Log("built", time.Since(start))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := lab.ServeDHCP(ctx); err != nil {
		t.Fatal(err)
	}
	start = time.Now()
	cfg := client.Config{Kind: client.KindMacvlan, Count: 100, Parent: lab.ClientIf, LAN: lab.LAN, Gateway: lab.Gateway(), Lab: 'a'}
	if err := lab.Client.CreateClients(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	t.Log("created", time.Since(start))
	start = time.Now()
	addrs, err := lab.Client.Lease(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Log("leased", time.Since(start), addrs[0], addrs[len(addrs)-1])
	out, err := lab.Client.Run(ctx, agent.Command{Client: 3, Argv: []string{"ping", "-c", "2", "-i", "0.1", testbed.ServerAddr.Addr().String()}})
	t.Log(out.Stdout, err)
	if err := lab.Router.OpenMeter(ctx, agent.Meter{IfNames: []string{lab.LANIf, lab.WANIf}}); err != nil {
		t.Fatal(err)
	}
	s, err := lab.Router.Sample(ctx)
	t.Logf("%+v %v", s, err)
	start = time.Now()
	if err := lab.Client.Release(ctx); err != nil {
		t.Fatal(err)
	}
	t.Log("released", time.Since(start))
	start = time.Now()
	lab.Close()
	t.Log("closed", time.Since(start))
}
