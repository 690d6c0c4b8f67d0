// Tests of which CPUs the hosts of a lab run on.

package backend

import (
	"slices"
	"testing"
)

// TestSecondCPU: metered hosts whose programs need a second CPU take one from the endpoints, unless the endpoints have
// only one: then both share it.
func TestSecondCPU(t *testing.T) {
	for _, c := range []struct {
		cpus              []int
		second, endpoints []int
		shared            bool
	}{
		{[]int{3}, []int{3}, []int{3}, true},
		{[]int{0, 1}, []int{0}, []int{0}, true},
		{[]int{0, 1, 2, 5}, []int{2}, []int{0, 1}, false},
	} {
		p := placementOn(c.cpus).WithSecond()
		if !slices.Equal(p.Second, c.second) || !slices.Equal(p.Endpoints, c.endpoints) || p.SecondShared() != c.shared ||
			!slices.Equal(p.InUse(), c.cpus) {
			t.Errorf("on %v: %v, shared %v; all are %v", c.cpus, p, p.SecondShared(), p.InUse())
		}
		if placementOn(c.cpus).SecondShared() {
			t.Errorf("on %v: a placement without a second CPU shares it", c.cpus)
		}
	}
}

// TestEndpointsApart: when the endpoints are on a machine of their own (Apart), CPU 1 of the router's machine and CPU 1
// of theirs are different CPUs. So nothing is shared, and the endpoints' CPUs are not in use on the router's machine.
func TestEndpointsApart(t *testing.T) {
	p := Placement{Router: []int{1}, Endpoints: []int{0, 1}, Apart: true}
	if p.Shared() || !slices.Equal(p.Beside(), []int{1}) || !slices.Equal(p.InUse(), []int{1}) {
		t.Errorf("shared %v, beside the routers %v, in use %v", p.Shared(), p.Beside(), p.InUse())
	}
	if second := p.WithSecond(); len(second.Second) > 0 || len(second.Endpoints) != 2 {
		t.Errorf("with a second CPU: %+v", second)
	}
}
