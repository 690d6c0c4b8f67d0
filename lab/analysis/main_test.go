package analysis_test

import (
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
)

// TestMain makes garbage collection less frequent, because these tests summarise thousands of simulated runs.
func TestMain(m *testing.M) { analysistest.Main(m) }
