"""The rules of `phrases` for classes of errors of MindSpore: its operators, datasets and graphs.

What `class_phrases` says of its rules holds for these.
"""

from __future__ import annotations

from typing import Final

MINDSPORE: Final = r"""
# MindSpore's operators, runtime and packages, with its guides on network construction and on errors of CANN
root arguments of an operator = an operator was called with an argument of a wrong type or shape: see the message
    ^(?:Value|Type)Error: For (?:primitive\[|'[a-z0-9]+',)
root kernel of MindSpore = an operator has no kernel for these data types or this device: see the supported ones
    Can not select a valid kernel info|Select \w+ (?:operator|kernel)\b.*\bfail|Unsupported op \[
root tensors in a dataset = the functions of a dataset cannot use tensor operations: use NumPy there
    The pointer\[cnode\] is null
root runtime of MindSpore = the device was not set up: see MindSpore's first ERROR, and whether the device is in use
    The pointer\[stream\] is null
root compiler of MindSpore = a process that compiles operators hangs or has ended: see the errors above, and the memory
    ^RuntimeError: (?:Response is empty|Try to (?:send request|get response) before Open)
root operators' compiler = the compiler of CANN's operators cannot be started: check set_env.sh and Python's packages
    TbeInitialize \w+ failed
root internal error of MindSpore = an internal check of MindSpore failed: see its ERROR lines, and try a newer version
    The pointer\W?[\w()>.:-]+(?: tensor)?\W? is null|framework's unexpected error
root device of MindSpore = this package of MindSpore was built for another type of device: install the one for Ascend
    package type mindspore-\w+ support
# MindSpore minddata and its documentation, "data processing debugging methods and common errors"
root MindRecord = a MindRecord file exists already or is incomplete: delete it, or pass overwrite=True
    MRMOpenError|MindRecord File could not open
root page of MindRecord = a sample is larger than a page of its MindRecord file: see set_page_size()
    Page size: \d+ is too small
root workers of a dataset = a dataset has more workers than there are CPU cores: see num_parallel_workers
    num_(?:parallel_)?workers=\d+, this value is not within
root tree of a dataset = a dataset is used by two pipelines: create it once for each
    data pipeline is not a tree
root source of a dataset = the source of a dataset does not match its declaration: check its columns, length and reset
    Unable to fetch data from GeneratorDataset|'source' of '?GeneratorDataset'? (?:should|is different)
root function of a pipeline = a function of the dataset's pipeline failed: see its exception in the message
    Exception thrown from user defined Python function|map operation: \[PyFunc\] failed
root transform of a sample = a transform of the dataset failed: check the shape, type and file of the sample
    map operation: \[\w+\] failed
root sample = a sample of the dataset cannot be loaded: see the file that the message names
    Exception thrown from dataset pipeline
# MindSpore, graph mode: frontend/parallel, pipeline/jit and the FAQ on network compilation
root parallel strategy = an operator's parallel strategy does not match its shapes: see MindSpore's ERROR lines above
    ^\[ERROR\] PARALLEL|can ?not be (?:split|divisible) by strategy|The strategy is .*(?:strategy len|shape)
root branches of a graph = branches of the code return different types or shapes: see the lines that the message names
    (?:Type|Shape) Join Failed|Cannot join the return values of different branches
root depth of a graph = recursion or loops are too deep for graph mode: see max_call_depth
    function call depth limit|There isn't any branch that can be evaluated
root arguments of construct = a network is called with arguments that its construct() does not accept
    function construct (?:needs?|requires?) |Multipl[ey] values for specific argument
    |The parameters number of the function is
root code in graph mode = graph mode does not support this code: see the line that the message names, or use PyNative
    Unsupported (?:statement|expression|syntax|parsing type)|(?:unsupported|not supported|invalid) in graph mode
    |Should not use Python object in runtime|Do not support to (?:convert|get attribute)|Parse \w+ Function Fail
    |Only support comparison with|supports True, False and None|can not compile temporary source code|Illegal AnyValue
    |comparator 'AnyValue'|should be (?:defined|initialized) .*'__init__' function
root backend of MindSpore = MindSpore has no backend for this device: check its package, CANN and device_target
    device address type is wrong|Create device context failed|(?:unsupported|not supported) device[ _]target
    |Device target \[\w+\] is not supported
"""
