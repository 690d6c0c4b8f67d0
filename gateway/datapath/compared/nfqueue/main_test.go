package nfqueue

import (
	"slices"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
)

func TestMain(m *testing.M) { datapathtest.Main(m, slices.Concat(paths(false), paths(true))...) }
