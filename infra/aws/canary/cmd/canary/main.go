// Command canary prints the template of make deploy CANARY=PRESET. It reads template.yaml and samconfig.toml.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/clusterpass/clusterpass/infra/aws/canary"
)

func main() {
	preset := flag.String("preset", "", "deployment configuration of CodeDeploy, such as Linear10PercentEvery1Minute")
	provisioned := flag.Int("provisioned", 0, "provisioned concurrency of the function control, or 0 for none")
	flag.Parse()
	if err := run(os.Stdout, canary.Options{Preset: *preset, Provisioned: *provisioned, Time: time.Now()}); err != nil {
		fmt.Fprintln(os.Stderr, "make deploy:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, o canary.Options) error {
	samconfig, err := os.ReadFile("samconfig.toml")
	if err != nil {
		return fmt.Errorf("CANARY needs the parameters of the stack: %w; run make deploy without CANARY, "+
			"and save the answers", err)
	}
	if o.Parameters, err = canary.Parameters(samconfig); err != nil {
		return err
	}
	template, err := os.ReadFile("template.yaml")
	if err != nil {
		return err
	}
	text, err := canary.Template(template, o)
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	return err
}
