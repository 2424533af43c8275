import sys

from opwright_codegen.cli import main

sys.exit(main())
