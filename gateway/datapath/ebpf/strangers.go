package ebpf

import (
	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// budgets returns datapath.Budgets for the programs, in the order of enum work.
func budgets() (out [gatewayWorkWORKS]gatewayBudget) {
	for program, kind := range map[gatewayWork]datapath.Work{
		gatewayWorkWORK_DATAGRAM: datapath.Datagram, gatewayWorkWORK_CONNECTION: datapath.Connection,
		gatewayWorkWORK_SEGMENT: datapath.Segment,
		gatewayWorkWORK_CAPTURE: datapath.Capture, gatewayWorkWORK_GARDEN: datapath.GardenFlow,
		gatewayWorkWORK_LASTING: datapath.LongTracked,
		gatewayWorkWORK_REFUSAL: datapath.Refusal, gatewayWorkWORK_QUESTION: datapath.Question,
	} {
		out[program] = budgetOf(datapath.Budgets[kind])
	}
	return out
}

func budgetOf(r budget.Rate) gatewayBudget {
	return gatewayBudget{CostNs: uint64(r.Cost()), MostNs: uint64(r.BucketSize())}
}
