package nfqueue

import (
	"testing"

	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
)

func TestMain(m *testing.M) { datapathtest.Main(m, paths()...) }
