package studies_test

import (
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
)

func TestMain(m *testing.M) { analysistest.Main(m) }
