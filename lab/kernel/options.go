package kernel

import (
	"os"
	"path/filepath"
	"strings"
)

// Has reports whether the kernel was built with an option of its configuration ("CONFIG_NFT_QUEUE") and, where it was
// built as a module, whether that module is there. module may be empty. A kernel that comes without its configuration
// has what its lists of modules name.
func (k Kernel) Has(option, module string) bool {
	for _, file := range []string{
		filepath.Join(k.Modules, "config"), filepath.Join(filepath.Dir(k.Image), "config-"+k.Release)} {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		text := "\n" + string(data)
		return strings.Contains(text, "\n"+option+"=y\n") ||
			strings.Contains(text, "\n"+option+"=m\n") && (module == "" || k.hasModule(module))
	}
	return module != "" && k.hasModule(module)
}

func (k Kernel) hasModule(name string) bool {
	_, err := k.withDependencies([]string{name})
	return err == nil
}
