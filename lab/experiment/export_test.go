package experiment

// What the tests of this package look at from within.
var (
	BalancedOrder = balancedOrder
	BuiltinFiles  = builtinFiles
	BuiltinNames  = builtinNames
)

const (
	MaxFileBytes   = maxFileBytes
	MaxPlanBlocks  = maxPlanBlocks
	DefaultWindows = defaultWindows
)
