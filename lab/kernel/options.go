package kernel

import (
	"os"
	"path/filepath"
	"strings"
)

// Has reports whether a kernel has a feature: its configuration has the option ("CONFIG_NFT_QUEUE") built in, or as a
// module whose file is there. module is the name of that module; if it is empty, no file is looked for. For a kernel
// without its configuration the lists of its modules decide.
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

// hasModule reports whether the kernel has a module, built in or as a file.
func (k Kernel) hasModule(name string) bool {
	_, err := k.withDependencies([]string{name})
	return err == nil
}
