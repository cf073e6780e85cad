// Nothing of this header is used; ProcessGroupGloo.hpp includes it.
#pragma once
