package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/users"
)

// adminPlace is the file of those who may log in at the admin page.
type adminPlace struct{ config, file string }

// path returns the file's path: that of --file, or of the configuration.
func (p *adminPlace) path() (string, error) {
	if p.file != "" {
		return p.file, nil
	}
	path, err := config.AdminAccounts(p.config)
	if err != nil {
		return "", &exitError{exitUsage, err}
	}
	return path, nil
}

// minAdminPassword is how many characters a new admin's password has at least. NIST SP 800-63B-4, 3.1.1.2, asks for 15
// where nothing else protects an account, and 8 beside a second factor; the page listens on few addresses.
const minAdminPassword = 12

// longEnough refuses passwords that could be guessed.
func longEnough(password string) error {
	if utf8.RuneCountInString(password) < minAdminPassword {
		return fmt.Errorf("an admin's password must have at least %d characters: four words that have nothing to do with "+
			"each other are easy to remember", minAdminPassword)
	}
	return nil
}

func adminCommand() *cobra.Command {
	place := &adminPlace{}
	cmd := &cobra.Command{
		Use:   "admin",
		Short: "Make accounts of the admin page, list and remove them",
		Long: "Accounts of the admin page and its API are in the file that admin.accounts names. The commands change the\n" +
			"file, as root on this machine; the daemon reads it at the next request. Where a password is forgotten,\n" +
			"`gatewayd admin set NAME` gives another.",
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVarP(&place.config, "config", "c", defaultConfig, "the configuration that names the file")
	cmd.PersistentFlags().StringVar(&place.file, "file", "", "the file, instead of the configuration's")
	cmd.AddCommand(adminSetCommand(place), adminTokenCommand(place), adminListCommand(place), adminRemoveCommand(place))
	return cmd
}

// adminRole are the flags of what an account may do.
type adminRole struct {
	role  string
	whois bool
}

func (a *adminRole) add(cmd *cobra.Command, usual string) {
	cmd.Flags().StringVar(&a.role, "role", usual, "admin, or read-only: may look, and change nothing")
	cmd.Flags().BoolVar(&a.whois, "whois", false, "read-only accounts: may ask who used an address")
}

// write writes the account, whose secret is a hash, or users.ProxyOnly.
func (a *adminRole) write(place *adminPlace, name, secret string) error {
	path, err := place.path()
	if err != nil {
		return err
	}
	line, err := users.Operator{Role: users.Role(a.role), Whois: a.whois}.Line(name, secret)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	return users.SetOperator(path, name, line)
}

func adminSetCommand(place *adminPlace) *cobra.Command {
	var role adminRole
	var proxy bool
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Make an account with a password, or give one another password or role",
		Long: "Makes an account with a password, or gives one another password or role. It reads the password twice and\n" +
			"without echo from a terminal, else the first line of standard input. Browsers that the account is logged in\n" +
			"with must log in again. With --proxy there is no password: a trusted proxy logs the account in.",
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			secret := users.ProxyOnly
			if _, err := (users.Operator{Role: users.Role(role.role), Whois: role.whois}).Line(args[0], secret); err != nil {
				return &exitError{exitUsage, err}
			}
			if !proxy {
				password, err := askPassword(cmd.Context(), os.Stdin, os.Stderr)
				if err != nil {
					return err
				}
				if err := longEnough(password); err != nil {
					return err
				}
				secret = users.Hash(password)
			}
			if err := role.write(place, args[0], secret); err != nil {
				return err
			}
			fmt.Fprintf(stdout, "%s may log in, %s\n", plain(args[0], 253), role.role)
			return nil
		},
	}
	role.add(cmd, string(users.Admin))
	cmd.Flags().BoolVar(&proxy, "proxy", false, "without a password, for an account that a trusted proxy logs in")
	return cmd
}

func adminTokenCommand(place *adminPlace) *cobra.Command {
	var role adminRole
	cmd := &cobra.Command{
		Use:   "token NAME",
		Short: "Make an account of a program, and print the token by which it uses the API",
		Long: "Makes an account of a program, and prints its token, which is not kept: programs send it to the API as\n" +
			"Authorization: Bearer TOKEN. For an account that is there, the new token takes the place of its password or\n" +
			"former token.",
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			token, hashed := users.NewToken()
			if err := role.write(place, args[0], hashed); err != nil {
				return err
			}
			fmt.Fprintln(stdout, token)
			return nil
		},
	}
	role.add(cmd, string(users.ReadOnly))
	return cmd
}

func adminListCommand(place *adminPlace) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the accounts of the admin page",
		Args:  usage(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			path, err := place.path()
			if err != nil {
				return err
			}
			text, err := users.ReadOperators(path)
			if err != nil {
				return err
			}
			all, ways, err := users.ParseOperators(path, text)
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "NAME\tROLE\tWHOIS\tLOGS IN BY")
			for _, name := range slices.Sorted(maps.Keys(all)) {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", plain(name, 253), all[name].Role,
					map[bool]string{true: "yes", false: "no"}[all[name].Whois], ways[name])
			}
			return w.Flush()
		},
	}
}

func adminRemoveCommand(place *adminPlace) *cobra.Command {
	return &cobra.Command{
		Use:   "remove NAME",
		Short: "Remove an account: its browsers and tokens are refused at once",
		Args:  usage(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			path, err := place.path()
			if err != nil {
				return err
			}
			err = users.SetOperator(path, args[0], "")
			if errors.Is(err, users.ErrNoOperator) {
				err = fmt.Errorf("%w: gatewayd admin list shows all", err)
			}
			return err
		},
	}
}
